"""Shows that this build of llama.cpp computes on this CPU: one answer from a made-up model of 100 KB."""

from __future__ import annotations

import os
import signal
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.llama_cpp import native
from tuner.engines.llama_cpp.session import LlamaSession

_HIDDEN, _FEED_FORWARD, _VOCABULARY, _HEADS = 64, 128, 96, 1
_Q4_0, _F32 = 2, 0
_Q4_0_BLOCK = struct.pack("<e", 0.01) + bytes(range(0, 256, 16))

_REBUILD = (
    "where a GCC older than 12.4 or 13.3 compiled it for a CPU with AMX, that compiler is the cause (its bug"
    " 114098): rebuild with CFLAGS=-fno-dse CXXFLAGS=-fno-dse and pip's --no-cache-dir, or with a newer GCC"
)


def run() -> dict[str, object]:
    """Version, build, and what is unsafe: weight repacking where it kills the process.

    Repacked weights have kernels of their own, so they are tried first in a fork. Everything else dies
    with this process, whose parent reads the signal.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tiny.gguf")
        path.write_bytes(tiny_model())
        died_of = _try_in_fork(path)
        answer(path, repack=died_of is None)
    facts: dict[str, object] = {"version": native.version(), "build": native.build()}
    if died_of is not None:
        facts["unsafe"] = [("repack", True)]
        facts["note"] = f"weight repacking (repack=true) ends this build with {died_of}; {_REBUILD}"
    return facts


def answer(path: Path, *, repack: bool) -> list[int]:
    """Two tokens after a prompt of nine, so that kernels for many and for one token run."""
    settings: dict[str, Setting] = {"repack": repack, "n_threads": 1, "n_threads_batch": 1, "n_ubatch": 16}
    session = LlamaSession()
    session.load(path, settings)
    session.configure(settings, 32, 1)
    session.add(range(1, 10), 2, ignore_eos=True)
    tokens = [token.token for _ in range(2) for token in session.step()]
    session.close()
    return tokens


def _try_in_fork(path: Path) -> str | None:
    """The name of the signal that ended the fork, None when it ended well or was refused cleanly."""
    child = os.fork()
    if child == 0:
        try:
            answer(path, repack=True)
        except EngineError:
            pass
        finally:
            os._exit(0)
    _child, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else None


def tiny_model() -> bytes:
    """A llama of one layer in q4_0, as a GGUF file without a tokenizer."""
    metadata: list[tuple[str, int | float | str]] = [
        ("general.architecture", "llama"),
        ("llama.block_count", 1),
        ("llama.context_length", 64),
        ("llama.embedding_length", _HIDDEN),
        ("llama.feed_forward_length", _FEED_FORWARD),
        ("llama.attention.head_count", _HEADS),
        ("llama.attention.layer_norm_rms_epsilon", 1e-5),
        ("llama.rope.dimension_count", _HIDDEN // _HEADS),
        ("llama.vocab_size", _VOCABULARY),
        ("tokenizer.ggml.model", "none"),
    ]
    tensors = list(_tensors())
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata:
        parts.append(_text(key))
        if isinstance(value, str):
            parts.append(struct.pack("<I", 8) + _text(value))
        else:
            form = ("<If", 6) if isinstance(value, float) else ("<II", 4)
            parts.append(struct.pack(form[0], form[1], value))
    offset = 0
    for name, shape, kind, data in tensors:
        dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        parts.append(_text(name) + dimensions + struct.pack("<IQ", kind, offset))
        offset += -(-len(data) // 32) * 32
    header = b"".join(parts)
    return _padded(header) + b"".join(_padded(data) for _name, _shape, _kind, data in tensors)


def _tensors() -> Iterator[tuple[str, tuple[int, ...], int, bytes]]:
    vector = struct.pack(f"<{_HIDDEN}f", *[1.0] * _HIDDEN)
    matrices = {
        "token_embd": (_HIDDEN, _VOCABULARY),
        "output": (_HIDDEN, _VOCABULARY),
        **{f"blk.0.attn_{part}": (_HIDDEN, _HIDDEN) for part in ("q", "k", "v", "output")},
        "blk.0.ffn_gate": (_HIDDEN, _FEED_FORWARD),
        "blk.0.ffn_up": (_HIDDEN, _FEED_FORWARD),
        "blk.0.ffn_down": (_FEED_FORWARD, _HIDDEN),
    }
    for name, (columns, rows) in matrices.items():
        yield f"{name}.weight", (columns, rows), _Q4_0, _Q4_0_BLOCK * (columns * rows // 32)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        yield f"{name}.weight", (_HIDDEN,), _F32, vector


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 32)
