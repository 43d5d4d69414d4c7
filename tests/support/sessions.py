"""Simulated sessions with faults that need more than a variable: slow, failing, hanging, untemplated."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from profiles.vocabulary import Setting
from service.generator.launching import Serving, serving_of
from tuner.engines.base import EngineError, Token
from tuner.engines.simulated.session import SimulatedSession

STEP_S = 0.01
FAILS_AFTER = 3


class Slow(SimulatedSession):
    """Every step takes real time, of a prompt as many steps as it has tokens over 16."""

    def __init__(self) -> None:
        super().__init__()
        self._entering = 0
        self._pause = threading.Event()

    def add(self, prompt: Sequence[int], max_tokens: int, **options: Any) -> int:
        self._entering = max(self._entering, len(prompt) // 16)
        return super().add(prompt, max_tokens, **options)

    def step(self) -> list[Token]:
        self._pause.wait(STEP_S)
        if self._entering > 0:
            self._entering -= 1
            return []
        return super().step()

    def cancel(self, sequence: int) -> None:
        super().cancel(sequence)
        if not self._running:
            self._entering = 0


class Told(Slow):
    """Says in its log with how many threads it is configured."""

    def configure(self, settings: Mapping[str, Setting], context_tokens: int, streams: int) -> None:
        super().configure(settings, context_tokens, streams)
        os.write(2, f"n_threads={settings['n_threads']}\n".encode())


class Failing(SimulatedSession):
    """Fails once a sequence has got some tokens."""

    def step(self) -> list[Token]:
        tokens = super().step()
        if any(len(sequence.made) > FAILS_AFTER for sequence in self._running.values()):
            raise EngineError("the engine has had enough")
        return tokens


class Hanging(SimulatedSession):
    """Does not come back from a step after some tokens."""

    def step(self) -> list[Token]:
        tokens = super().step()
        if any(len(sequence.made) > FAILS_AFTER for sequence in self._running.values()):
            threading.Event().wait()
        return tokens


class Untemplated(SimulatedSession):
    """A model without a chat template."""

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | None:
        del messages
        return None


class _Other:
    """An engine with another session."""

    def __init__(self, engine: Any, session: type) -> None:
        self._engine = engine
        self.session = f"{session.__module__}:{session.__qualname__}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def serve_with(patch: pytest.MonkeyPatch, session: type) -> None:
    """Let services run this session in place of the engine's own."""

    def other(*arguments: Any) -> Serving:
        found = serving_of(*arguments)
        return replace(found, engine=_Other(found.engine, session))

    patch.setattr("service.app.serving_of", other)
    patch.setattr("service.swapping.serving_of", other)


def on_one_thread(patch: pytest.MonkeyPatch) -> None:
    """Let services compute on one thread: two that spin collapse beside a busy neighbour."""

    def other(*arguments: Any) -> Serving:
        found = serving_of(*arguments)
        one = {"n_threads": 1, "n_threads_batch": 1}
        return replace(found, run_settings={**found.run_settings, **one})

    patch.setattr("service.app.serving_of", other)
    patch.setattr("service.swapping.serving_of", other)
