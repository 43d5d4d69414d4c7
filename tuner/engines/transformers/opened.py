"""A Hugging Face folder opened in PyTorch, its weights as the folder's note says."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.transformers.text import Text
from tuner.engines.transformers.variants import BF16, F32, LABELS

NOTE = "cputune.json"
"""Says {"weights": LABEL} in the folders that this engine's maker wrote; others are opened as float32."""

Logits = npt.NDArray[np.float32]


class Opened:
    """Model and text of one folder."""

    def __init__(self, folder: Path, settings: Mapping[str, Setting]) -> None:
        """`attention` and `interop_threads` count; EngineError with the library's line where it refuses."""
        set_interop_threads(settings.get("interop_threads"))
        if not (folder / "config.json").is_file():
            raise EngineError(f"{folder.name} is no folder of Hugging Face: it lacks config.json")
        self.weights = _weights_of(folder)
        options: dict[str, Any] = {
            "dtype": torch.bfloat16 if self.weights in (BF16, "int8_bnb") else torch.float32,
            "attn_implementation": str(settings.get("attention", "sdpa")),
            "local_files_only": True,
            "trust_remote_code": False,
        }
        if self.weights == "int8_bnb":
            from transformers import BitsAndBytesConfig

            # It says at every multiplication that it casts.
            logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
            options |= {"quantization_config": BitsAndBytesConfig(load_in_8bit=True), "device_map": "cpu"}
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, **options)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError) as error:
            raise EngineError(f"cannot open {folder.name}: {' '.join(str(error).split())[:300]}") from error
        if self.weights in ("int8", "int8_dynamic"):
            _quantize(model, self.weights)
        self.model: Any = model.eval()
        self.text = Text(folder)
        self.vocabulary_size = int(model.config.vocab_size)
        self.attention = str(model.config._attn_implementation)

    @property
    def dtype(self) -> str:
        """What most of the weights are stored in, as torch names it."""
        sizes: dict[str, int] = {}
        for parameter in self.model.parameters():
            name = str(parameter.dtype).removeprefix("torch.")
            sizes[name] = sizes.get(name, 0) + parameter.numel()
        return max(sizes, key=lambda name: sizes[name])

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end an answer, by the model's generation settings and its tokenizer."""
        named = self.model.generation_config.eos_token_id
        listed = named if isinstance(named, list) else [named]
        return frozenset(int(token) for token in (*listed, self.text.end) if token is not None)


class TorchCache:
    """A KV cache of one sequence; implements `tuner.engines.slots.Cache`."""

    def __init__(self, opened: Opened, *, uses_cache: bool = True) -> None:
        """Without `uses_cache` nothing is kept but the tokens: all of them are computed for each new one."""
        self._opened = opened
        self._uses_cache = uses_cache
        self._cache = DynamicCache()
        self._tokens: list[int] = []
        self.threads = (0, 0)
        """For one token, and for more of them."""

    def feed(self, tokens: Sequence[int]) -> Logits:
        """Compute some tokens after what is there; the logits after the last one."""
        row: Logits = self.logits(tokens, last_only=True)[0]
        return row

    def logits(self, tokens: Sequence[int], *, last_only: bool = False) -> Logits:
        """As `feed`, the logits after each token, of shape (tokens, vocabulary)."""
        self._tokens.extend(tokens)
        given = list(tokens) if self._uses_cache else self._tokens
        wanted = self.threads[len(given) > 1]
        if wanted and wanted != torch.get_num_threads():
            torch.set_num_threads(wanted)
        try:
            with torch.inference_mode():
                output = self._opened.model(
                    input_ids=torch.tensor([given]),
                    cache=self._cache if self._uses_cache else None,
                    use_cache=self._uses_cache,
                    logits_to_keep=1 if last_only else len(tokens),
                )
        except RuntimeError as error:
            raise EngineError(" ".join(str(error).split())[:300]) from error
        found: Logits = output.logits[0, :, : self._opened.vocabulary_size].float().numpy()
        return found

    def keep(self, tokens: int) -> int:
        """Forget all but the first tokens."""
        surplus = len(self._tokens) - tokens
        del self._tokens[tokens:]
        if tokens == 0:
            self._cache = DynamicCache()
        elif self._uses_cache and surplus:
            self._cache.crop(-surplus)
        return tokens


def set_interop_threads(wanted: Setting | None) -> None:
    """Set the pool between operations, which a process can do once; EngineError where it has another size."""
    if not isinstance(wanted, int) or wanted == torch.get_num_interop_threads():
        return
    try:
        torch.set_num_interop_threads(wanted)
    except RuntimeError as error:
        raise EngineError(
            f"interop_threads={wanted}: this process has {torch.get_num_interop_threads()} already, and they"
            " can be set once only; another process is needed"
        ) from error


def _weights_of(folder: Path) -> str:
    path = folder / NOTE
    if not path.exists():
        return F32
    weights = json.loads(path.read_text()).get("weights", F32)
    if weights not in LABELS:
        raise EngineError(f"{path} says weights={weights}; allowed: {', '.join(LABELS)}")
    return str(weights)


def _quantize(model: Any, weights: str) -> None:
    """All linear layers to 8 bits, the output layer with them."""
    try:
        from torchao.quantization import (
            Int8DynamicActivationInt8WeightConfig,
            Int8WeightOnlyConfig,
            quantize_,
        )
    except ImportError as error:
        raise EngineError(f"{weights} needs torchao: {error}") from error
    quantize_(model, Int8WeightOnlyConfig() if weights == "int8" else Int8DynamicActivationInt8WeightConfig())
