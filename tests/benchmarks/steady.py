"""Takes out of a landscape how the machine's own speed moved while it was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from profiles.vocabulary import Config
from tests.benchmarks.landscape import Landscape
from tuner.engines.base import Phase

NEIGHBOURS = 12
"""Measurements before and after one in time, which tell what moved all of them."""
REPEATS = 3
"""The parts' own medians move with what is taken out."""


def steady(land: Landscape) -> Landscape:
    """A landscape whose rounds are divided by what they share with those that were measured around them.

    Each round deviates from its part's median, on log time; the running median of these deviations over
    neighbours in time is the machine's drift, of minutes to an hour. A replay draws rounds of a whole
    recording into a search of one minute, which in truth meets the drift of that minute only. What is left is
    the noise from one round to the next. What a part meets in every pass alike stays in its median.
    """
    return replace(land, samples_ms={phase: _without_drift(land, phase) for phase in Phase})


def _without_drift(land: Landscape, phase: Phase) -> dict[Config, list[float]]:
    table = land.samples_ms[phase]
    parts = [part for part, rounds in table.items() for _ in rounds]
    if not parts:
        return dict(table)
    number = {part: row for row, part in enumerate(table)}
    rows = np.array([number[part] for part in parts])
    logs = np.log([value for rounds in table.values() for value in rounds])
    order = np.argsort(list(_times(table, land.at_s[phase])), kind="stable")
    for _ in range(REPEATS):
        medians = np.array([np.median(logs[rows == row]) for row in range(len(table))])
        deviations = (logs - medians[rows])[order]
        logs[order] -= _running_median(deviations)
    values = iter(np.exp(logs))
    return {part: [float(next(values)) for _ in rounds] for part, rounds in table.items()}


def _times(table: Mapping[Config, list[float]], at_s: Mapping[Config, list[float]]) -> Iterator[float]:
    """When each round was measured; by the recorder's order where no times were kept, pass after pass, every
    other one backwards."""
    for row, (part, rounds) in enumerate(table.items()):
        known = at_s.get(part, [])
        for number in range(len(rounds)):
            turned = row if number % 2 == 0 else len(table) - 1 - row
            yield known[number] if len(known) == len(rounds) else number * len(table) + turned


def _running_median(values: np.ndarray) -> np.ndarray:
    padded = np.pad(values, NEIGHBOURS, mode="reflect") if len(values) > NEIGHBOURS else values
    if len(padded) == len(values):
        return np.full(len(values), np.median(values))
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1), axis=1)
