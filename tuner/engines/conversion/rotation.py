"""Llama 3.1's rotation of positions: factors as GGUF files hold them, parameters as folders say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Factors = npt.NDArray[np.float32]

TENSOR = "rope_freqs.weight"
_PUBLISHED = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The same in all models that have factors; only `factor` differs."""


def llama3_factors(rope: Mapping[str, Any], base: float, head: int) -> Factors:
    """By what each frequency of a head is divided, of shape (head / 2,).

    1 for short waves, `factor` for those beyond the context that it was first trained on, a blend between:
    `_compute_llama3_parameters` of Transformers.
    """
    factor = float(rope["factor"])
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    waves = 2 * np.pi * base ** (np.arange(0, head, 2) / head)
    blend = np.clip((rope["original_max_position_embeddings"] / waves - low) / (high - low), 0, 1)
    found: Factors = (1 / ((1 - blend) / factor + blend)).astype(np.float32)
    return found


def stored_factors(files: Sequence[Path]) -> Factors | None:
    """The factors in the GGUF files of a model; None where it has none."""
    import gguf

    return _factors([gguf.GGUFReader(path) for path in files])


def stored_frequencies(files: Sequence[Path]) -> npt.NDArray[np.float32]:
    """By how much each pair of a head's values turns from one position to the next, of shape (head / 2,), as
    the GGUF files of a model say it."""
    import gguf

    readers = [gguf.GGUFReader(path) for path in files]
    fields = readers[0].fields
    name = str(fields["general.architecture"].contents())

    def number(key: str, otherwise: float) -> float:
        field = fields.get(f"{name}.{key}")
        return otherwise if field is None else float(field.contents())

    shared = number("embedding_length", 0) // number("attention.head_count", 1)
    head = int(number("rope.dimension_count", number("attention.key_length", shared)))
    plain = number("rope.freq_base", 10000.0) ** -(np.arange(0, head, 2) / head)
    factors = _factors(readers)
    return (plain if factors is None else plain / factors).astype(np.float32)


def _factors(readers: Sequence[Any]) -> Factors | None:
    for reader in readers:
        for tensor in reader.tensors:
            if tensor.name == TENSOR:
                return np.array(tensor.data, np.float32).ravel()
    return None


def llama3_parameters(factors: Factors, base: float) -> dict[str, Any]:
    """The configuration that gives such factors; ValueError for others than Llama 3.1's and later ones'."""
    found = {**_PUBLISHED, "factor": float(factors.max())}
    if not np.allclose(llama3_factors(found, base, 2 * factors.size), factors, rtol=1e-3):
        raise ValueError(
            f"the factors in {TENSOR} are not those of Llama 3.1, which are all that is converted"
        )
    return found
