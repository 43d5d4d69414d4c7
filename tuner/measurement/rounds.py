"""One silent round of generation on a session, with the time of every token."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tuner.engines.base import Session
from tuner.measurement import counters

SPARE_STEPS = 1000
"""Steps without a token that a round may take beyond one for each token of prompt and output."""


class InvalidRoundError(Exception):
    """The engine gave fewer or other tokens than asked: what was timed is not what was wanted."""


@runtime_checkable
class VirtualTime(Protocol):
    """A session whose clock is not the machine's; it tells its own counters and needs no canary."""

    def counters(self) -> Mapping[str, float]:
        """Totals by the names of `counters.deltas`."""


@dataclass(frozen=True)
class Trace:
    """A round: nanoseconds after the submission of all streams at which each one's tokens came.

    `facts` are the counters' deltas over the round.
    """

    token_ns: tuple[tuple[int, ...], ...]
    facts: Mapping[str, float]

    @property
    def wall_ns(self) -> int:
        """Submission to the last token of all."""
        return max(times[-1] for times in self.token_ns)


def run_round(
    session: Session, prompts: Sequence[Sequence[int]], output_tokens: int, *, reuse_prefix: bool = False
) -> Trace:
    """Run one request a prompt, all at once, each for exactly `output_tokens` tokens.

    Nothing but the engine's loop happens meanwhile: no collection, no reading, no writing. Raises
    InvalidRoundError when a stream ends early or the engine makes no headway.
    """
    virtual = session if isinstance(session, VirtualTime) else None
    with _quiet():
        canary_before = {} if virtual else counters.canary()
        before = None if virtual else counters.snapshot()
        virtual_before = dict(virtual.counters()) if virtual else {}
        started = session.now_ns()
        order = [
            session.add(prompt, output_tokens, ignore_eos=True, reuse_prefix=reuse_prefix)
            for prompt in prompts
        ]
        times: dict[int, list[int]] = {sequence: [] for sequence in order}
        try:
            _drive(session, times, output_tokens, steps=_most_steps(prompts, output_tokens))
        finally:
            for sequence in order:
                session.cancel(sequence)
        if before is None:
            assert virtual is not None
            facts = {
                name: total - virtual_before.get(name, 0.0) for name, total in virtual.counters().items()
            }
        else:
            facts = counters.deltas(before, counters.snapshot())
            canary_after = counters.canary()
            facts |= {name: max(value, canary_after[name]) for name, value in canary_before.items()}
    return Trace(tuple(tuple(at - started for at in times[sequence]) for sequence in order), facts)


def _drive(session: Session, times: dict[int, list[int]], output_tokens: int, steps: int) -> None:
    running = set(times)
    now_ns = session.now_ns
    while running:
        tokens = session.step()
        now = now_ns()
        for token in tokens:
            if token.sequence not in running:
                continue
            times[token.sequence].append(now)
            count = len(times[token.sequence])
            if count == output_tokens:
                running.discard(token.sequence)
            elif token.finish is not None:
                raise InvalidRoundError(
                    f"the engine ended a stream after {count} of {output_tokens} tokens ({token.finish})"
                )
        steps -= 1
        if steps < 0:
            done = sum(map(len, times.values()))
            raise InvalidRoundError(
                f"the engine makes no headway: {done} of {output_tokens * len(times)} tokens"
            )


def _most_steps(prompts: Sequence[Sequence[int]], output_tokens: int) -> int:
    return sum(map(len, prompts)) + output_tokens * len(prompts) + SPARE_STEPS


@contextmanager
def _quiet() -> Iterator[None]:
    """No garbage collection; one full one before, so that no round pays for another."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
