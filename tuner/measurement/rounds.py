"""One silent round of generation on a session, with the time of every token."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tuner.engines.base import Session
from tuner.measurement import counters
from tuner.measurement.collapse import CollapseError, Watch

SPARE_STEPS = 1000
"""Steps without a token that a round may take beyond one for each token of prompt and output."""


class InvalidRoundError(Exception):
    """The engine gave fewer or other tokens than asked: what was timed is not what was wanted."""


@runtime_checkable
class VirtualTime(Protocol):
    """A session whose clock is not the machine's; it tells its own counters and needs no canary."""

    def counters(self) -> Mapping[str, float]:
        """Totals by the names of `counters.deltas`."""

    def beside(self, neighbours: int) -> None:
        """So many processes are busy beside it from now on."""


@runtime_checkable
class Interruptible(Protocol):
    """A session whose computation can be stopped."""

    def interrupt(self) -> None:
        """End the step that computes now without a token; called from another thread."""


@dataclass(frozen=True)
class Trace:
    """A round: nanoseconds after the submission of all streams at which each one's tokens came.

    `facts` are the counters' deltas over the round. `collapsed` says why it was given up; the tokens that
    came before are there.
    """

    token_ns: tuple[tuple[int, ...], ...]
    facts: Mapping[str, float]
    collapsed: str | None = None


def run_round(
    session: Session,
    prompts: Sequence[Sequence[int]],
    output_tokens: int,
    *,
    reuse_prefix: bool = False,
    deeper: Sequence[Sequence[int]] = (),
    neighbours: int = 0,
    watch: Watch | None = None,
) -> Trace:
    """Run one request a prompt, all at once, each for exactly `output_tokens` tokens.

    With `deeper` a round has two parts: the prompts up to their first token, then as many tokens after
    each prompt with its continuation in `deeper`, whose own computing is in no token's time. `neighbours`
    of our own are busy meanwhile; only a session in virtual time must be told. `watch` may end a round.

    Nothing but the engine's loop happens meanwhile: no collection, no reading, no writing. Raises
    InvalidRoundError when a stream ends early or the engine makes no headway.
    """
    virtual = session if isinstance(session, VirtualTime) else None
    if virtual is not None:
        virtual.beside(neighbours)
    collapsed = None
    with _quiet(), watch or nullcontext():
        canary_before = {} if virtual else counters.canary()
        before = None if virtual else counters.snapshot()
        virtual_before = dict(virtual.counters()) if virtual else {}
        started = session.now_ns()
        streams: list[list[int]] = []
        parts = [streams]
        try:
            if deeper:
                firsts: list[list[int]] = []
                parts.insert(0, firsts)
                _ask(session, prompts, 1, firsts, reuse_prefix)
                prompts = [[*prompt, *more] for prompt, more in zip(prompts, deeper, strict=True)]
                reuse_prefix = True
            _ask(session, prompts, output_tokens, streams, reuse_prefix, watch)
        except CollapseError as error:
            collapsed = str(error)
        if before is None:
            assert virtual is not None
            facts = {
                name: total - virtual_before.get(name, 0.0) for name, total in virtual.counters().items()
            }
        else:
            facts = counters.deltas(before, counters.snapshot())
            canary_after = counters.canary()
            facts |= {name: max(value, canary_after[name]) for name, value in canary_before.items()}
    return Trace(tuple(_joined(own, started) for own in zip(*parts, strict=False)), facts, collapsed)


def _joined(parts: Sequence[Sequence[int]], started: int) -> tuple[int, ...]:
    """A stream's times since `started`, without what lies between the first token of its two parts."""
    first, last = parts[0], parts[-1]
    skipped = last[0] - first[0] if first and last else 0
    return tuple(at - skipped - started for at in last or first)


def _ask(
    session: Session,
    prompts: Sequence[Sequence[int]],
    output_tokens: int,
    streams: list[list[int]],
    reuse_prefix: bool,
    watch: Watch | None = None,
) -> None:
    """Fill `streams` with the time of each token, also where it is cut short."""
    order = [
        session.add(prompt, output_tokens, ignore_eos=True, reuse_prefix=reuse_prefix) for prompt in prompts
    ]
    times: dict[int, list[int]] = {sequence: [] for sequence in order}
    streams.extend(times.values())
    try:
        _drive(session, times, output_tokens, steps=_most_steps(prompts, output_tokens), watch=watch)
    finally:
        for sequence in order:
            session.cancel(sequence)


def _drive(
    session: Session, times: dict[int, list[int]], output_tokens: int, steps: int, watch: Watch | None
) -> None:
    running, silent = set(times), len(times)
    now_ns = session.now_ns
    while running:
        tokens = session.step()
        now = now_ns()
        if watch is not None and not silent:
            watch.step(now)
        for token in tokens:
            if token.sequence not in running:
                continue
            times[token.sequence].append(now)
            count = len(times[token.sequence])
            if count == 1:
                silent -= 1
                if watch is not None and not silent:
                    watch.begin(now, output_tokens)
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
