"""Simulated sessions that behave as more than a variable can tell: slow, crowded, failing, hanging."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from profiles.vocabulary import Setting
from service.generator.launching import Serving, serving_of
from tuner.engines.base import EngineError, Token
from tuner.engines.simulated.session import SimulatedSession

STEP_S = 0.01
COLD_S = 1.0
CROWDED_S = 0.05
LABOUR_S = 2.0
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


class Cold(SimulatedSession):
    """Its first step takes long, as where memory is touched for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self._pause_s = COLD_S

    def step(self) -> list[Token]:
        threading.Event().wait(self._pause_s)
        self._pause_s = 0.0
        return super().step()


class Crowded(SimulatedSession):
    """Several sequences together get far fewer tokens per second than one alone, by the machine's clock."""

    def step(self) -> list[Token]:
        threading.Event().wait(CROWDED_S if len(self._running) > 1 else CROWDED_S / 10)
        return super().step()

    def now_ns(self) -> int:
        return time.perf_counter_ns()


class Laborious(SimulatedSession):
    """A prompt that is longer than the warm-up's takes long, and is work."""

    def step(self) -> list[Token]:
        if any(not one.made and len(one.prompt) > 16 for one in self._running.values()):
            until = time.process_time() + LABOUR_S
            while time.process_time() < until:
                pass
        return super().step()


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
