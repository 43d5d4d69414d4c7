"""What identifies an installation of PyTorch and the libraries that compute on it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import torch

_LIBRARIES = ("torchao", "bitsandbytes")


def identity() -> str:
    """Versions of what computes, and the instruction set that PyTorch chose for this CPU."""
    parts = [f"torch {torch.__version__}", torch.backends.cpu.get_cpu_capability()]
    for name in _LIBRARIES:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(parts)
