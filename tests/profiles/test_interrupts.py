"""Ctrl-C while the store writes: the write is whole, and the next one need not wait."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from store_examples import FAST

from profiles.interrupts import ENDING, held_back
from profiles.records import StudyRecord, StudyStatus
from profiles.store import Store, owner_token


@pytest.fixture(params=ENDING)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that raises KeyboardInterrupt in this process."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, before)


@contextmanager
def sent_at(moment: str, number: signal.Signals) -> Iterator[None]:
    """Get the signal at a moment of every transaction."""

    def send(*_: object) -> None:
        signal.raise_signal(number)

    event.listen(Engine, moment, send)
    try:
        yield
    finally:
        event.remove(Engine, moment, send)


@pytest.mark.parametrize("moment", ["begin", "before_cursor_execute", "after_cursor_execute", "commit"])
def test_a_write_is_whole_and_leaves_no_lock(
    path: Path, study: StudyRecord, number: signal.Signals, moment: str
):
    with Store.open(path, busy_timeout_s=0.2) as store:
        with pytest.raises(KeyboardInterrupt), sent_at(moment, number):
            store.start_trial(study.id, FAST, owner_token())
        store.finish_study(study.id, StudyStatus.INTERRUPTED)
        assert [trial.config for trial in store.trials(study.id)] == [FAST]


def test_a_signal_comes_once_and_after_the_block(number: signal.Signals):
    done = []

    def block() -> None:
        with held_back():
            with held_back():
                signal.raise_signal(number)
                signal.raise_signal(number)
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["inner", "outer"]
    assert signal.getsignal(number) is signal.default_int_handler


def test_a_block_that_fails_holds_nothing_back_any_more(number: signal.Signals):
    with pytest.raises(ValueError, match="wrong"), held_back():
        raise ValueError("wrong")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_writes_as_ever():
    handlers = []

    def work() -> None:
        with held_back():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
