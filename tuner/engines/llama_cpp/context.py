"""A loaded model with a context on it: opened, remade when its settings change, read back, freed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.vocabulary import Setting
from tuner.engines.base import EngineError
from tuner.engines.llama_cpp.locking import locked_bytes
from tuner.engines.llama_cpp.native import (
    FLASH_ATTENTION,
    LOG,
    engine_version,
    ggml_type,
    is_numa,
    low,
    set_fields,
    start,
    use_numa,
    version,
)
from tuner.engines.llama_cpp.vocabulary import Vocabulary

CONTEXT_SETTINGS = ("n_ubatch", "flash_attn", "type_k", "type_v", "swa_full", "n_seq_max", "kv_unified")
LOAD_SETTINGS = ("repack", "mmap", "mlock", "numa")
LEAST_CONTEXT = 512
"""llama-cpp-python's default context: smaller ones would clip its default batch."""

_LOAD_MODES = {
    (True, False): low.LLAMA_LOAD_MODE_MMAP,
    (True, True): low.LLAMA_LOAD_MODE_MMAP_MLOCK,
    (False, True): low.LLAMA_LOAD_MODE_MLOCK,
    (False, False): low.LLAMA_LOAD_MODE_NONE,
}
"""(mmap, mlock) -> the engine's one setting for both."""

_EXTRA_BUFFER = r"(\S*(?:REPACK|AMX|AARCH64|KLEIDIAI|SPACEMIT)\S*) model buffer size =\s+([\d.]+) MiB"


class AbortedError(Exception):
    """A computation was stopped by the abort flag."""


class Batch:
    """Preallocated input of `llama_decode`, filled by slices, which costs no call per token."""

    def __init__(self, size: int) -> None:
        self._tokens: Any = (ctypes.c_int32 * size)()
        self._positions: Any = (ctypes.c_int32 * size)()
        self._slots: Any = (ctypes.c_int32 * size)()
        self._slot_counts = (ctypes.c_int32 * size)(*[1] * size)
        self._outputs: Any = (ctypes.c_int8 * size)()
        slot_pointer = ctypes.POINTER(ctypes.c_int32)
        base = ctypes.addressof(self._slots)
        self._slot_pointers = (slot_pointer * size)(
            *(ctypes.cast(base + 4 * index, slot_pointer) for index in range(size))
        )
        self.native = low.llama_batch()
        set_fields(
            self.native,
            token=self._tokens,
            pos=self._positions,
            n_seq_id=self._slot_counts,
            seq_id=self._slot_pointers,
            logits=self._outputs,
        )

    def put(self, at: int, tokens: Sequence[int], position: int, slot: int, *, outputs: int) -> None:
        """Place tokens of one sequence from entry `at` on; the last `outputs` of them give logits."""
        count = len(tokens)
        end = at + count
        self._tokens[at:end] = tokens
        self._positions[at:end] = range(position, position + count)
        self._slots[at:end] = [slot] * count
        self._outputs[at:end] = [0] * (count - outputs) + [1] * outputs


class LoadedModel:
    """A model file opened with the settings of load scope."""

    def __init__(self, path: Path, settings: Mapping[str, Setting]) -> None:
        start()
        use_numa(settings.get("numa", "off"))
        LOG.clear()
        parameters = low.llama_model_default_params()
        repack, mlock = bool(settings.get("repack", True)), bool(settings.get("mlock", False))
        mode = _LOAD_MODES[bool(settings.get("mmap", True)), mlock]
        set_fields(parameters, use_extra_bufts=repack, load_mode=mode, n_gpu_layers=0)
        self.handle = low.llama_model_load_from_file(os.fsencode(path), parameters)
        if not self.handle:
            reason = LOG.last_error(f"cannot load {path.name}")
            raise EngineError(f"llama.cpp {engine_version()} (llama-cpp-python {version()}): {reason}")
        if low.llama_model_has_encoder(self.handle):
            self.close()
            raise EngineError(f"{path.name} is an encoder-decoder model; only decoders are served")
        self.vocabulary = Vocabulary(self.handle)
        self.facts = _load_facts(repack=repack, mlock=mlock)
        if "numa" in settings and is_numa() is False:
            # Which strategy it has under any is not told.
            self.facts["numa"] = "off"

    def close(self) -> None:
        """Free the model; twice is once."""
        if self.handle:
            low.llama_model_free(self.handle)
            self.handle = None


class Context:
    """One llama.cpp context: its handles, its preallocated batch, what it says of itself."""

    def __init__(
        self,
        model: LoadedModel,
        settings: Mapping[str, Setting],
        context_tokens: int,
        streams: int,
        *,
        outputs: int = 0,
    ) -> None:
        """Make a context of `streams` sequences, or `n_seq_max` where set, that hold `context_tokens` each.

        `outputs` is the largest number of positions whose logits one call needs; 0 leaves the engine's
        default. A tight bound is no gain: with 1 or 2, prefill of several batches took a third longer
        (docs/decisions/0010-engine-defaults.md).
        Raises EngineError with the engine's line when it refuses.
        """
        if context_tokens < 2 or streams < 1:
            raise EngineError(
                f"context of {context_tokens} tokens x {streams} streams; at least 2 x 1 are needed"
            )
        ubatch = settings.get("n_ubatch", 512)
        if not isinstance(ubatch, int) or ubatch < 1:
            raise EngineError(f"n_ubatch={ubatch}; at least 1 is needed")
        sequences = settings.get("n_seq_max", streams)
        if not isinstance(sequences, int) or sequences < 1:
            raise EngineError(f"n_seq_max={sequences}; at least 1 is needed")
        self.sequences = sequences
        # The cache rounds each sequence's share up to a multiple of 256; the total must allow for it.
        cells = max(-(-context_tokens // 256) * 256, -(-LEAST_CONTEXT // sequences)) * sequences
        parameters = low.llama_context_default_params()
        set_fields(
            parameters,
            n_ctx=cells,
            n_batch=max(LEAST_CONTEXT, ubatch),
            n_ubatch=ubatch,
            n_seq_max=sequences,
            n_outputs_max=outputs,
            flash_attn_type=FLASH_ATTENTION[str(settings.get("flash_attn", "off"))],
            type_k=ggml_type(settings.get("type_k", "f16")),
            type_v=ggml_type(settings.get("type_v", "f16")),
            kv_unified=bool(settings.get("kv_unified", False)),
            swa_full=bool(settings.get("swa_full", True)),
            no_perf=True,
        )
        # strlen is the abort callback: 0 while the flag's first byte is 0, 1 once it is set. A callback
        # in Python would take the interpreter's lock at each of a thousand graph nodes per token.
        self.abort_flag = ctypes.create_string_buffer(2)
        self._callback = ctypes.cast(ctypes.CDLL(None).strlen, low.ggml_abort_callback)
        set_fields(
            parameters,
            abort_callback=self._callback,
            abort_callback_data=ctypes.addressof(self.abort_flag),
        )
        LOG.clear()
        self.handle = low.llama_init_from_model(model.handle, parameters)
        if not self.handle:
            raise EngineError(LOG.last_error("llama_init_from_model refused the context"))
        self.memory = low.llama_get_memory(self.handle)
        self._window: int = low.llama_model_n_swa(model.handle)
        self.n_batch: int = low.llama_n_batch(self.handle)
        self.batch = Batch(self.n_batch)
        self.logged = context_facts()
        self.rebuild_key = rebuild_key(settings, context_tokens, streams)

    def decode(self, count: int) -> None:
        """Compute the first `count` entries of the batch.

        Raises AbortedError when the abort flag was set meanwhile, EngineError for what the engine refuses;
        after either the cache holds an unknown part of the batch.
        """
        self.batch.native.n_tokens = count
        result = low.llama_decode(self.handle, self.batch.native)
        if result == 0:
            return
        if result == 2:
            raise AbortedError
        if result == 1:
            raise EngineError(f"no room in the KV cache for {count} more tokens")
        raise EngineError(LOG.last_error(f"llama_decode returned {result}"))

    def set_threads(self, decode: int, prefill: int) -> None:
        """Threads of single-token batches, and of all larger ones."""
        low.llama_set_n_threads(self.handle, decode, prefill)

    def effective(self) -> dict[str, Setting]:
        """Settings as the engine holds them: by its getters, else from its log, else absent."""
        handle = self.handle
        return {
            **self.logged,
            "n_threads": low.llama_n_threads(handle),
            "n_threads_batch": low.llama_n_threads_batch(handle),
            "n_ubatch": low.llama_n_ubatch(handle),
            "n_batch": low.llama_n_batch(handle),
            "n_ctx": low.llama_n_ctx(handle),
            "n_seq_max": low.llama_n_seq_max(handle),
        }

    def keep(self, slot: int, tokens: int) -> bool:
        """Forget a sequence from position `tokens` on; False where the cache can't (it forgets all then)."""
        # A window that slid past the kept part may have dropped cells that the next token needs. Asked
        # before the removal: an emptied cache has no least position. (llama-server has the same rule.)
        oldest = low.llama_memory_seq_pos_min(self.memory, slot)
        if (
            tokens > 0
            and oldest <= max(0, tokens - self._window)
            and low.llama_memory_seq_rm(self.memory, slot, tokens, -1)
        ):
            return True
        low.llama_memory_seq_rm(self.memory, slot, -1, -1)
        return tokens == 0

    def copy(self, source: int, target: int, tokens: int) -> bool:
        """Give a sequence the first `tokens` of another one's cache in the place of its own; as `keep`."""
        low.llama_memory_seq_rm(self.memory, target, -1, -1)
        # Between sequences with caches of their own only whole ones can be copied.
        low.llama_memory_seq_cp(self.memory, source, target, -1, -1)
        return self.keep(target, tokens)

    def close(self) -> None:
        """Free the context; twice is once."""
        if self.handle:
            low.llama_free(self.handle)
            self.handle = None


def _load_facts(*, repack: bool, mlock: bool) -> dict[str, Setting]:
    """What the load's log tells: repacked weights, if any; whether the file is mapped, and locked.

    A model without repackable weights says nothing: "asked for, nothing to repack" is then unknown, not
    False. A lock that the kernel refused is a warning only, and the engine runs on without it.
    """
    repacked = sum(float(size) for _name, size in LOG.find(_EXTRA_BUFFER))
    facts: dict[str, Setting] = {"repacked_mib": repacked}
    if repacked or not repack:
        facts["repack"] = repacked > 0
    modes = {mode for (mode,) in LOG.find(r"load_mode = (\S+)\)")}
    if len(modes) == 1:
        facts["mmap"] = "mmap" in modes.pop()
    facts["mlock"] = mlock and locked_bytes() > 0 and not LOG.find(r"(failed to mlock)")
    return facts


def context_facts() -> dict[str, Setting]:
    """KV types, flash attention, one cache for all, the window's cache as the log tells, else absent."""
    facts: dict[str, Setting] = {}
    caches = set(LOG.find(r"K \((\w+)\):.*V \((\w+)\):"))
    if len(caches) == 1:
        facts["type_k"], facts["type_v"] = caches.pop()
    flash = {state for (state,) in LOG.find(r"flash_attn\s+= (\w+)")}
    if len(flash) == 1:
        state = flash.pop()
        if state in ("enabled", "disabled"):
            facts["flash_attn"] = "on" if state == "enabled" else "off"
    unified = {word for (word,) in LOG.find(r"kv_unified\s+= (\w+)")}
    if len(unified) == 1:
        facts["kv_unified"] = unified.pop() == "true"
    if LOG.find(r"(creating\s+SWA KV cache)"):
        facts["swa_full"] = bool(LOG.find(r"(using full-size SWA cache)"))
    return facts


def rebuild_key(settings: Mapping[str, Setting], context_tokens: int, streams: int) -> tuple[object, ...]:
    """Equal exactly where a living context serves other settings too."""
    return (*(settings.get(name) for name in CONTEXT_SETTINGS), context_tokens, streams)
