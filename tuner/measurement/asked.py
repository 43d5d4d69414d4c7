"""What one round asks of the engine (prompts, tokens, and at what depth it decodes), and what it gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from profiles.vocabulary import Config, Role, RoundSamples, Workload
from tuner.engines.base import Dimension, Phase
from tuner.measurement.prompts import Prompts

Kind = Literal["short", "full"]

SHORT_TOKENS = 20
BATCH_TOKENS = 512
"""Prompt tokens that enter a step, where no setting says less."""
ABORTED = "aborted"
"""The fact of a round that was given up: it has only the tokens that came before."""
WORTH_DEEPER = 0.05
"""A short round decodes in the middle of the answer where that is so much deeper than its beginning."""


@dataclass(frozen=True)
class Ask:
    """One round: `prompts` are new, or in the cache already; `deeper` continues each of them, unasked, before
    the tokens that are timed."""

    prompts: list[list[int]]
    output_tokens: int
    reuse_prefix: bool = False
    deeper: Sequence[list[int]] = ()

    @property
    def cached(self) -> list[list[int]]:
        """What is in the cache after it."""
        if not self.deeper:
            return self.prompts
        return [[*prompt, *more] for prompt, more in zip(self.prompts, self.deeper, strict=True)]


def ask_of(
    workload: Workload,
    kind: Kind,
    phases: frozenset[Phase],
    prompts: Prompts,
    *,
    cached: list[list[int]] | None = None,
    tokens: int | None = None,
    prefill_chunk: int = BATCH_TOKENS,
) -> Ask:
    """A round of a workload, of `tokens` a stream where it is a short one.

    None means 20 tokens, and of several streams as many more as are made while their prompts enter by
    `prefill_chunk`. `cached` is what a decode-only round may go on after; without it its prompt is computed
    first, in no token's time.
    """
    new = prompts.draw
    if kind == "full":
        return Ask(new(workload.streams, workload.prompt_tokens), workload.output_tokens)
    if phases == {Phase.PREFILL}:
        return Ask(new(workload.streams, workload.prompt_tokens), 1)
    if tokens is None:
        entering = -(-workload.prompt_tokens * workload.streams // prefill_chunk)
        # The first stream still generates when the last one's prompt is there: then the rate shows.
        tokens = SHORT_TOKENS + (entering if workload.streams > 1 else 0)
    tokens = min(tokens, workload.output_tokens)
    more = depth_tokens(workload, tokens)
    if phases == {Phase.DECODE}:
        known = cached or new(workload.streams, workload.prompt_tokens)
        missing = workload.prompt_tokens + more - len(known[0])
        if missing > 0:
            known = [[*a, *b] for a, b in zip(known, new(workload.streams, missing), strict=True)]
        return Ask(known, tokens, reuse_prefix=True)
    started = new(workload.streams, workload.prompt_tokens)
    return Ask(started, tokens, deeper=new(workload.streams, more) if more else ())


def depth_tokens(workload: Workload, tokens: int) -> int:
    """How many tokens lie between the prompt and `tokens` in the middle of the answer; 0 where that matters
    little, or where several streams run, whose prompts and tokens are computed side by side."""
    more = (workload.output_tokens - tokens) // 2
    is_deeper = more > WORTH_DEEPER * (workload.prompt_tokens + more)
    return more if is_deeper and workload.streams == 1 else 0


def busy_threads(config: Config, described: Sequence[Dimension], workload: Workload, cpus: int) -> int:
    """How many threads compute a token, `cpus` at most; 0 for one alone, which waits for nobody."""
    phase = Phase.DECODE if workload.streams == 1 else Phase.PREFILL
    counts = [
        min(value, cpus)
        for d in described
        if d.role is Role.THREADS and phase in d.phases and isinstance(value := config.get(d.name), int)
    ]
    most = max(counts, default=0)
    return most if most > 1 else 0


def samples_of(
    kind: Kind,
    ask: Ask,
    token_ns: Sequence[Sequence[int]],
    facts: Mapping[str, float],
    dropped: str | None,
) -> RoundSamples:
    """A round from the times of its tokens since its beginning; without TTFT after a reused prefix."""
    is_whole = kind == "full" and ABORTED not in facts
    return RoundSamples(
        kind=kind,
        ttft_ms=() if ask.reuse_prefix else tuple(stream[0] / 1e6 for stream in token_ns if stream),
        gaps_ms=tuple(
            tuple((later - earlier) / 1e6 for earlier, later in pairwise(stream)) for stream in token_ns
        ),
        response_ms=tuple(stream[-1] / 1e6 for stream in token_ns) if is_whole else (),
        wall_ms=max((stream[-1] for stream in token_ns if stream), default=0) / 1e6,
        dropped=dropped,
        facts={**facts, "output_tokens": float(sum(map(len, token_ns)))},
    )
