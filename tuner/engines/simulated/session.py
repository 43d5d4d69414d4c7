"""A session on the response surface, with a virtual clock: it takes no time, it says how long it took."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from profiles.vocabulary import Setting
from tuner.engines.base import Built, EngineError, Sampling, Token
from tuner.engines.simulated import faults, files, surface, text

VERSION = "1"
BUILD = "simulated-1"
LOAD_SETTINGS = ("repack",)
SETTINGS = ("n_threads", "n_threads_batch", "n_ubatch", "flash_attn", "type_k", "type_v")
BATCH_TOKENS = 512
LOAD_MS = 80.0
CONTEXT_MS = 20.0

faults.strike("import", "*")


@dataclass
class _Sequence:
    prompt: list[int]
    max_tokens: int
    ignore_eos: bool
    seed: int
    slot: int
    speed: float
    ready: int
    """Prompt tokens in the cache."""
    made: list[int] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return len(self.prompt) - self.ready


class SimulatedSession:
    """Implements `tuner.engines.base.Session`; equal seeds and calls give equal times and tokens."""

    def __init__(self) -> None:
        self._world = self._given = surface.World.from_environment()
        self._random = random.Random(self._world.seed)
        self._clock_ns = 0
        self._busy_ns = 0
        self._run_delay_ns = 0
        self._variant: str | None = None
        self._faults: frozenset[str] = frozenset()
        self._settings: dict[str, Setting] = {}
        self._context_tokens = 0
        self._slots: list[list[int]] = []
        self._running: dict[int, _Sequence] = {}
        self._kept: dict[int, tuple[int, int]] = {}
        self._requests = 0

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Read the variant from the file; strikes the faults of loading."""
        if self._variant is not None:
            raise EngineError("a session loads one model in its life")
        variant = files.variant_of(path)
        self._faults = faults.active(variant)
        faults.strike("load", variant)
        self._accept(settings, LOAD_SETTINGS)
        self._settings.setdefault("repack", True)
        self._variant = variant
        self._pass_ms(LOAD_MS)

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        """Apply settings; a new context forgets everything that was prefilled."""
        faults.strike("configure", self._loaded())
        before = {name: self._settings.get(name) for name in ("n_ubatch", "flash_attn", "type_k", "type_v")}
        self._accept(settings, SETTINGS)
        missing = [name for name in SETTINGS if name not in self._settings]
        if missing:
            raise EngineError(f"settings are missing: {', '.join(missing)}")
        if self._settings["type_v"] != "f16" and self._settings["flash_attn"] == "off":
            raise EngineError("a quantized V cache needs flash_attn=on")
        same = all(self._settings[name] == value for name, value in before.items())
        if not (same and context_tokens == self._context_tokens and streams == len(self._slots)):
            self._context_tokens = context_tokens
            self._slots = [[] for _ in range(streams)]
            self._running.clear()
            self._pass_ms(CONTEXT_MS)

    def effective(self) -> Mapping[str, Setting]:
        """The settings as they are; one of them not as asked under `effective_mismatch`."""
        found = dict(self._settings)
        if "effective_mismatch" in self._faults and "flash_attn" in found:
            found["flash_attn"] = "off" if found["flash_attn"] == "on" else "on"
        return found

    def built(self) -> Built:
        """Constant, with the variant as a fact."""
        return Built(VERSION, BUILD, {"variant": self._loaded()})

    def tokenize(self, text_: str, *, leading: bool = True) -> list[int]:
        """One token a byte."""
        return text.tokenize(text_)[0 if leading else 1 :]

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some tokens."""
        return text.detokenize(tokens)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The messages in a simple template."""
        return text.chat_prompt(messages)

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
        reuse_prefix: bool = False,
    ) -> int:
        """Queue a request in a free slot, the one with the longest common prefix where it is reused."""
        busy = {sequence.slot for sequence in self._running.values()}
        free = [slot for slot in range(len(self._slots)) if slot not in busy]
        if not free:
            raise EngineError(f"all {len(self._slots)} streams are in use")
        if not prompt or len(prompt) + max_tokens > self._context_tokens:
            raise EngineError(
                f"{len(prompt)} prompt and {max_tokens} output tokens:"
                f" a stream holds 1 to {self._context_tokens}"
            )
        shared = {slot: _common_prefix(self._slots[slot], prompt) if reuse_prefix else 0 for slot in free}
        slot = max(free, key=lambda candidate: shared[candidate])
        self._requests += 1
        seed = sampling.seed if sampling is not None and sampling.temperature > 0 else 0
        self._running[self._requests] = _Sequence(
            prompt=list(prompt),
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            seed=seed,
            slot=slot,
            speed=self._speed_of_request(),
            # The last token is always computed: its logits are the first answer.
            ready=min(shared[slot], len(prompt) - 1),
        )
        self._slots[slot] = []
        self._kept[slot] = self._requests, self._running[self._requests].ready
        return self._requests

    def step(self) -> list[Token]:
        """One batch: a token of every running sequence, prompt tokens of new ones in what is left of it."""
        if not self._running:
            return []
        faults.strike("decode", self._loaded())
        decoding = [(number, seq) for number, seq in self._running.items() if seq.made]
        room = BATCH_TOKENS - len(decoding)
        prefilled = 0
        ready = list(decoding)
        for number, sequence in self._running.items():
            if not sequence.made:
                taken = min(sequence.waiting, room - prefilled)
                sequence.ready += taken
                prefilled += taken
                if not sequence.waiting:
                    ready.append((number, sequence))
        self._pass_batch(prefilled, [sequence for _, sequence in decoding])
        return [self._next(number, sequence) for number, sequence in ready]

    def cancel(self, sequence: int) -> None:
        """Free the slot; what was computed in it can be reused."""
        gone = self._running.pop(sequence, None)
        if gone is not None:
            self._slots[gone.slot] = (gone.prompt + gone.made)[: gone.ready + len(gone.made)]

    def reused(self, sequence: int) -> int:
        """What the sequence's slot held when it began."""
        return next((kept for number, kept in self._kept.values() if number == sequence), 0)

    def now_ns(self) -> int:
        """Nanoseconds of the virtual clock."""
        return self._clock_ns

    def counters(self) -> Mapping[str, float]:
        """Totals of the simulated machine, in place of the kernel's (`rounds.VirtualTime`)."""
        return {
            "wall_ns": float(self._clock_ns),
            "cpu_ns": float(self._busy_ns),
            "busy_ns": float(self._busy_ns),
            "max_run_delay_ns": float(self._run_delay_ns),
        }

    def beside(self, neighbours: int) -> None:
        """So many processes are busy beside it from now on, beyond those of the simulated world."""
        self._world = replace(self._given, neighbours=self._given.neighbours + neighbours)

    def close(self) -> None:
        """Forget the model."""
        self._variant = None
        self._running.clear()
        self._slots = []

    def _loaded(self) -> str:
        if self._variant is None:
            raise EngineError("no model is loaded")
        return self._variant

    def _accept(self, settings: Mapping[str, Setting], known: Sequence[str]) -> None:
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise EngineError(f"unknown settings: {', '.join(unknown)}")
        self._settings.update(settings)

    def _next(self, number: int, sequence: _Sequence) -> Token:
        position = len(sequence.prompt) + len(sequence.made)
        last = sequence.made[-1] if sequence.made else sequence.prompt[-1]
        token = text.next_token(last, position, sequence.seed)
        sequence.made.append(token)
        finish = None
        if token == text.END_OF_SEQUENCE and not sequence.ignore_eos:
            finish = "stop"
        elif len(sequence.made) >= sequence.max_tokens:
            finish = "length"
        elif "short_output" in self._faults and 2 * len(sequence.made) >= sequence.max_tokens > 1:
            finish = "stop"
        if finish is not None:
            self.cancel(number)
        return Token(number, token, finish)

    def _pass_batch(self, prefilled: int, decoding: Sequence[_Sequence]) -> None:
        variant = self._loaded()
        prefill = surface.prefill_ms(self._world, variant, self._settings, prefilled) if prefilled else 0.0
        decode = 0.0
        if decoding:
            depth = max(len(sequence.prompt) + len(sequence.made) for sequence in decoding)
            decode = surface.decode_ms(self._world, variant, self._settings, depth, len(decoding))
            if "collapse" in self._faults and self._requests % 5 == 0 and len(decoding[0].made) > 4:
                decode *= 40.0
        factor = max(sequence.speed for sequence in self._running.values())
        factor *= self._random.lognormvariate(0.0, self._world.noise) if self._world.noise else 1.0
        self._busy_ns += int(
            factor * 1e6
            * (prefill * int(self._settings["n_threads_batch"]) + decode * int(self._settings["n_threads"]))
        )  # fmt: skip
        if "neighbour" in self._faults and factor > 1.0:
            self._run_delay_ns += int((prefill + decode) * (factor - 1.0) * 1e6)
        self._pass_ms((prefill + decode) * factor)

    def _speed_of_request(self) -> float:
        """The time factor of the request that is being added."""
        factor = 1.0
        # A short round is two requests, the prompt and tokens after it; the first request is a warm-up.
        rounds = self._requests // 2
        if "slow_first_rounds" in self._faults and rounds <= 1:
            factor *= 3.0
        if "drift" in self._faults:
            factor *= 1.05**rounds
        if "outlier" in self._faults and rounds % 5 == 4:
            factor *= 0.1
        if "neighbour" in self._faults and rounds % 3 == 2:
            factor *= 3.0
        return factor

    def _pass_ms(self, milliseconds: float) -> None:
        self._clock_ns += int(milliseconds * 1e6)


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
