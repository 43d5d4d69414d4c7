"""The protocols of an engine: what it describes, the session that runs it, the scorer that judges it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from probes.machine import Machine
from profiles.vocabulary import Config, ModelInfo, Role, Setting, Workload

if TYPE_CHECKING:
    import numpy as np


class Scope(IntEnum):
    """What must be made anew when a setting changes; a larger scope contains the smaller ones."""

    RUN = 0
    CONTEXT = 1
    LOAD = 2
    PROCESS = 3


class Phase(StrEnum):
    """The two parts of a request whose times add up to its response time."""

    PREFILL = "prefill"
    DECODE = "decode"


BOTH_PHASES = frozenset(Phase)


@dataclass(frozen=True)
class Dimension:
    """One setting that the search may vary, trimmed to the machine, the model and the workload.

    `values` are in ascending cost or size where they have an order; `default` is what a user gets who
    sets nothing and need not be among `values`. `phases` are those whose speed the setting can change
    when a single stream runs. `affects_quality` marks settings that change the output beyond rounding.
    """

    name: str
    values: tuple[Setting, ...]
    default: Setting
    scope: Scope
    role: Role
    phases: frozenset[Phase] = BOTH_PHASES
    affects_quality: bool = False


@dataclass(frozen=True)
class Recipe:
    """How a variant of a model is made: one step from its source, or from the result of another recipe.

    `label` is its name in configurations and tables ("q8_0"; "source" is the file as given);
    `parameters` are the maker's, part of the cache key. `estimated_bytes` is the result's size before it is
    made; `format` says what it is, a file or one of `FOLDERS`.
    `made_from` is the recipe whose result the maker takes, None for the source. `maker` is a module that runs
    in place of the engine's own; what it makes is the same for every engine that asks, and made once.
    `needs` are the distributions that the maker imports.
    """

    label: str
    parameters: tuple[tuple[str, Setting], ...] = ()
    estimated_bytes: int = 0
    format: str = "gguf"
    made_from: Recipe | None = None
    maker: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def is_source(self) -> bool:
        """Whether the variant is the user's file itself."""
        return self.label == SOURCE

    @property
    def chain(self) -> tuple[Recipe, ...]:
        """The steps that make it, in order; none for the source."""
        if self.is_source:
            return ()
        return (*(self.made_from.chain if self.made_from else ()), self)


SOURCE = "source"
FOLDERS = frozenset({"huggingface", "onnx", "openvino"})
"""Formats of models that are a folder of files."""


@dataclass(frozen=True)
class Availability:
    """Whether an engine runs here: `reason` is one line when it does not; `build` identifies it.

    `build` is a short stable text (version, compile features, library hash); a change in it is drift.
    `unsafe` holds settings with the values that were seen to kill this build here, left out of searches;
    `note` says why in one line.
    """

    name: str
    available: bool
    version: str | None = None
    build: str | None = None
    reason: str | None = None
    unsafe: tuple[tuple[str, Setting], ...] = ()
    note: str | None = None

    @property
    def identity(self) -> str:
        """Version and build, as samples and made variants are filed under them."""
        return f"{self.version} {self.build or ''}".strip()


class Engine(Protocol):
    """An engine's description: pure, no native library is imported by any of this.

    `formats` are those of the sources that it takes, as they are or by a conversion, its own first; a format
    has one engine that calls it its own, whose default is the baseline. `variant_labels` are all
    that it can make of any model. `session` and `scorer` are "module:Class" references that only a worker
    process imports. `has_openmp` says that the engine waits in an OpenMP runtime, so that the host-wide wait
    policy applies. `everyday` is a session as "module:Class" that runs the interface which people use without
    cputune, with nothing set; None where there is no other one.
    """

    name: str
    formats: tuple[str, ...]
    variant_labels: tuple[str, ...]
    session: str
    scorer: str
    has_openmp: bool
    everyday: str | None

    def probe_code(self) -> str:
        """Python source that imports the engine, runs it on a short prompt, and prints one JSON object
        {"version", "build"} with, where needed, {"unsafe", "note"}; run in a child process of its own."""

    def refuses(self, model: ModelInfo) -> str | None:
        """Why this engine can run no variant of the model, naming what is allowed; None when it can."""

    def recipes(self, model: ModelInfo) -> tuple[Recipe, ...]:
        """The variants this engine can run: the source first, or what is nearest to it where the engine can't
        open the source itself."""

    def reference(self, model: ModelInfo) -> Recipe:
        """The recipe of the quality reference: the given weights dequantized, f16 or better."""

    def maker(self) -> str:
        """A "module" run as `python -P -m MODULE SOURCE TARGET PARAMETERS_JSON` that makes a variant.

        TARGET does not exist before. The module ends with 0, or with its reason as stderr's last line.
        """

    def dimensions(self, machine: Machine, model: ModelInfo, workload: Workload) -> tuple[Dimension, ...]:
        """The engine's own settings, trimmed."""

    def default(self, machine: Machine, model: ModelInfo, workload: Workload) -> Config:
        """What a user gets who sets nothing, except a context that fits the workload."""

    def starts(
        self, machine: Machine, model: ModelInfo, workload: Workload
    ) -> tuple[Mapping[str, Setting], ...]:
        """Known-good settings to try first, by rule of thumb; each may name a part of the dimensions."""

    def violation(self, config: Config, machine: Machine, model: ModelInfo, workload: Workload) -> str | None:
        """Why this configuration can't run, naming values and what is allowed; None when it can."""

    def canonical(self, config: Config, model: ModelInfo, workload: Workload) -> Config:
        """The one form of all configurations that behave alike (an ubatch above the prompt, say)."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Token:
    """One token of one sequence; `finish` is "stop" or "length" on the last one, else None."""

    sequence: int
    token: int
    finish: str | None = None


@dataclass(frozen=True)
class Built:
    """What the opened engine says of itself; a setting that it can't tell is absent."""

    version: str
    build: str
    facts: Mapping[str, Setting] = field(default_factory=dict)


class Session(Protocol):
    """An opened model in a worker: one generation loop that serves one stream or many.

    Methods raise `EngineError` for what the engine refuses. All times are in nanoseconds of `now_ns`.
    """

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a model file with the settings of load scope; once in a session's life."""

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        """Apply all settings of context and run scope; the context is made anew only if one of its
        own settings, `context_tokens` (per stream) or `streams` changed."""

    def effective(self) -> Mapping[str, Setting]:
        """The settings as the engine holds them now, read back from it; those it can't tell are absent."""

    def built(self) -> Built:
        """Version, build and facts of the loaded engine."""

    def tokenize(self, text: str, *, leading: bool = True) -> list[int]:
        """Token ids of a text, with the model's own leading token where it wants one.

        Without `leading` the text continues another one.
        """

    def detokenize(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some tokens; may end inside a UTF-8 character."""

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """The messages in the model's chat template; None where the model has no template."""

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        sampling: Sampling | None = None,
        ignore_eos: bool = False,
        reuse_prefix: bool = False,
    ) -> int:
        """Queue a request and return its sequence id; nothing is computed before `step`.

        With `reuse_prefix`, what a slot's KV cache shares with the prompt is not computed again;
        without it the whole prompt is.
        """

    def step(self) -> list[Token]:
        """Run one batch of the engine: prompt tokens of new sequences, one token of each running one."""

    def cancel(self, sequence: int) -> None:
        """Drop a sequence, running or finished; unknown ids are ignored."""

    def reused(self, sequence: int) -> int:
        """Prompt tokens of a sequence that were not computed, being in the cache; asked before the next
        one takes its slot."""

    def now_ns(self) -> int:
        """The clock that the loop is timed by."""

    def close(self) -> None:
        """Free the context and the model."""


class Scorer(Protocol):
    """An opened model that gives logits for teacher-forced text, in a process of its own."""

    def load(self, path: Path, settings: Mapping[str, Setting]) -> None:
        """Open a model with the settings that affect quality (KV types, repack, flash attention)."""

    def tokenize(self, text: str) -> list[int]:
        """As the session's."""

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        """As the session's."""

    def start(self) -> None:
        """Begin a new text: forget all tokens."""

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Append tokens; the logits after each of them, float32 of shape (len(tokens), vocabulary)."""

    def close(self) -> None:
        """Free the model."""


class EngineError(Exception):
    """The engine refused or failed cleanly; the message is one line from the engine where it has one.

    Raised inside workers only; the parent sees a `WorkerError`.
    """
