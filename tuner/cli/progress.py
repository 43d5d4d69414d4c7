"""Progress of a search on stderr: a Rich view that is drawn only between rounds, or plain lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from profiles.vocabulary import Config
from tuner.events import Event
from tuner.search.ledger import Estimate

RECENT = 6


class Progress:
    """Shows events; nothing is drawn by a timer, because a redraw during a round would disturb it."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False)
        self._live: Live | None = None
        self._stage = ""
        self._best = ""
        self._left = ""
        self._recent: list[str] = []
        self._first: Config | None = None
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def observe(self, event: Event) -> None:
        """Take an event and draw once."""
        handlers: Mapping[str, Callable[[Event], None]] = {
            "stage": self._on_stage,
            "note": self._on_note,
            "trial": self._on_trial,
            "quality": self._on_quality,
            "pair": self._on_pair,
        }
        handler = handlers.get(event.kind)
        if handler is not None:
            handler(event)
            self._draw()

    def _on_stage(self, event: Event) -> None:
        self._stage = event.message
        if self._live is None:
            self._line(f"{event.message} ...")

    def _on_note(self, event: Event) -> None:
        if self._live is None:
            # Not by Rich, which would break the line at 80 columns.
            self._line(event.message)
        else:
            # Notes stay on the screen; the view below them is redrawn.
            self._live.console.print(Text(event.message))

    def _on_trial(self, event: Event) -> None:
        config, best = event.detail["config"], event.detail["best"]
        assert isinstance(config, Config)
        value = event.detail["value"]
        if self._first is None:
            self._first = config
        outcome = f"{value:.1f}" if isinstance(value, float) else event.message
        self._recall(f"  {event.detail['status']:<11} {outcome:>10}  {describe(config, self._first)}")
        if isinstance(best, Estimate):
            self._best = f"{best.value:.1f}  {describe(best.config, self._first)}"
        self._time_left(event)

    def _on_quality(self, event: Event) -> None:
        self._recall(f"  quality     {event.message}")

    def _on_pair(self, event: Event) -> None:
        ratio, median = event.detail["ratio"], event.detail["median"]
        self._recall(f"  pair {event.detail['pair']:>2}     {ratio:.3f}x  (median {median:.3f}x)")
        self._time_left(event)

    def _time_left(self, event: Event) -> None:
        left_s = event.detail.get("left_s")
        self._left = f"{left_s:.0f} s left" if isinstance(left_s, float) else ""

    def _recall(self, line: str) -> None:
        self._recent = [*self._recent, line][-RECENT:]
        if self._live is None:
            self._line(line)

    def _line(self, text: str) -> None:
        # A full or closed stderr is no reason to lose a search.
        with suppress(OSError):
            sys.stderr.write(text + "\n")

    def _draw(self) -> None:
        if self._live is None:
            return
        head = Text(f"{self._stage}  {self._left}", style="bold")
        best = Text(f"best so far: {self._best}" if self._best else "")
        self._live.update(
            Group(head, best, *(Text(line, style="dim") for line in self._recent)), refresh=True
        )


def describe(config: Config, default: Config) -> str:
    """A configuration in one line: its variant, and the settings that differ from the default's."""
    changed = [f"{name}={short(value)}" for name, value in config.settings if default.get(name) != value]
    return " ".join((config.engine, config.variant, *(changed or ["as the default"])))


def short(value: object) -> str:
    """A setting's value as one word."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
