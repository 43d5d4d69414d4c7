"""The serving worker: one engine, opened once, whose loop serves all requests that it is sent."""

from __future__ import annotations

import argparse
import gc
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from service.generator.pace import Pace
from service.generator.prompts import Prompts, RefusedError
from service.generator.text import TextAssembler
from tuner.engines import resolve
from tuner.engines.base import EngineError, Sampling, Session
from tuner.measurement.protocol import Channel, ChannelClosedError
from tuner.measurement.rounds import Interruptible

Message = Mapping[str, Any]


@dataclass
class _Answer:
    """A request on its way; times are the session's, in nanoseconds."""

    key: int
    sequence: int
    text: str
    prompt: list[int]
    assembler: TextAssembler
    submitted_ns: int
    first_ns: int = 0
    last_ns: int = 0
    made: list[int] = field(default_factory=list)


class Worker:
    """Serves messages with a session: what is in flight, what is said about it."""

    def __init__(self, session: Session, send: Callable[[Mapping[str, object]], None]) -> None:
        self._session = session
        self._send = send
        self._answers: dict[int, _Answer] = {}
        self._sequences: dict[int, int] = {}
        self._prompts = Prompts(session, 0)
        self._context_tokens = 0
        self._streams = 0
        self._pace = Pace(0)
        self._places = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being generated."""
        return not self._answers

    def open(self, message: Message) -> None:
        """Load the model, make its context, and say so."""
        began = self._session.now_ns()
        self._session.load(Path(message["path"]), message["load_settings"])
        self._context_tokens, self._streams = int(message["context_tokens"]), int(message["streams"])
        self._prompts = Prompts(self._session, self._context_tokens)
        self._places = self._streams
        self.configure(message)
        self._warm_up()
        load_ms = (self._session.now_ns() - began) / 1e6
        gc.collect()
        gc.freeze()
        built = self._session.built()
        self._send(
            {
                "event": "ready",
                "load_ms": load_ms,
                "build": f"{built.version} {built.build}".strip(),
                "effective": dict(self._session.effective()),
            }
        )

    def configure(self, message: Message) -> None:
        """Apply other settings of run scope; what runs goes on."""
        self._session.configure(message["run_settings"], self._context_tokens, self._streams)
        self._pace = Pace(self._streams)

    def _warm_up(self) -> None:
        """One short request, so that the first one of a user is like the others."""
        sequence = self._session.add([0] * 16, 4, ignore_eos=True)
        left = 4
        while left:
            left -= sum(token.sequence == sequence for token in self._session.step())

    def add(self, message: Message) -> None:
        """Begin a request, or say why it is refused."""
        key = int(message["key"])
        try:
            answer = self._begin(key, message)
        except RefusedError as error:
            self._refuse(key, str(error), error.code, error.param)
        except EngineError as error:
            self._refuse(key, str(error), "engine", None)
        else:
            self._answers[answer.sequence] = answer
            self._sequences[key] = answer.sequence

    def _refuse(self, key: int, message: str, code: str, param: str | None) -> None:
        self._send({"event": "refused", "key": key, "message": message, "code": code, "param": param})

    def _begin(self, key: int, message: Message) -> _Answer:
        submitted_ns = self._session.now_ns()
        text, prompt, max_tokens = self._prompts.of(message)
        sequence = self._session.add(
            prompt,
            max_tokens,
            sampling=Sampling(**message["sampling"]),
            ignore_eos=bool(message.get("ignore_eos", False)),
            reuse_prefix=True,
        )
        return _Answer(key, sequence, text, prompt, TextAssembler(message.get("stop", ())), submitted_ns)

    def cancel(self, message: Message) -> None:
        """Forget a request; its sequence leaves the batch."""
        sequence = self._sequences.pop(int(message["key"]), None)
        if sequence is not None:
            self._session.cancel(sequence)
            self._remember(self._answers.pop(sequence))

    def interrupt(self, message: Message) -> None:
        """Called from the reading thread: let a prompt that is being computed stop at once."""
        sequence = self._sequences.get(int(message["key"]))
        # Only such a session is made for calls from two threads.
        if sequence is not None and isinstance(self._session, Interruptible):
            self._session.cancel(sequence)

    def step(self) -> None:
        """One batch; what it made is sent as one message."""
        began_ns = self._session.now_ns()
        tokens = self._session.step()
        now_ns = self._session.now_ns()
        pieces = []
        ended = []
        going_on = 0
        for token in tokens:
            answer = self._answers.get(token.sequence)
            if answer is None:
                continue
            going_on += answer.first_ns > 0
            answer.first_ns = answer.first_ns or now_ns
            answer.last_ns = now_ns
            answer.made.append(token.token)
            piece = answer.assembler.feed(
                self._session.detokenize([token.token]), final=token.finish is not None
            )
            finish = "stop" if answer.assembler.stopped else token.finish
            if finish is not None and token.finish is None:
                self._session.cancel(token.sequence)
            pieces.append([answer.key, piece])
            if finish is not None:
                ended.append((answer, finish))
        if going_on == len(self._answers):
            # No prompt was computed beside it: the time is that of a token for each.
            self._pace.saw(going_on, now_ns - began_ns, now_ns)
        # Also where it has none: a worker that says nothing is taken for hung.
        self._send({"event": "step", "pieces": pieces})
        for answer, finish in ended:
            self._end(answer, finish)

    def _end(self, answer: _Answer, finish: str) -> None:
        del self._answers[answer.sequence], self._sequences[answer.key]
        made = len(answer.made)
        self._tell_places(answer.last_ns)
        self._send(
            {
                "event": "end",
                "key": answer.key,
                "finish": finish,
                "prompt_tokens": len(answer.prompt),
                "cached_tokens": self._session.reused(answer.sequence),
                "completion_tokens": made,
                "ttft_ms": (answer.first_ns - answer.submitted_ns) / 1e6,
                "tpot_ms": (answer.last_ns - answer.first_ns) / 1e6 / (made - 1) if made > 1 else None,
            }
        )
        self._remember(answer)

    def _tell_places(self, now_ns: int) -> None:
        """Say how many requests are worth running at a time, where that has changed."""
        places = self._pace.places(now_ns)
        if places != self._places:
            self._places = places
            self._send({"event": "places", "places": places})

    def _remember(self, answer: _Answer) -> None:
        """A last token that ended an answer is no part of the conversation's text."""
        self._prompts.remember(answer.text, answer.prompt, answer.made[:-1])

    def fail(self, error: EngineError) -> None:
        """End every request with what the engine said."""
        for answer in tuple(self._answers.values()):
            self._session.cancel(answer.sequence)
            self._send({"event": "failed", "key": answer.key, "message": str(error)})
        self._answers.clear()
        self._sequences.clear()


def serve(channel: Channel, session: Session) -> None:
    """Serve until `close`, or until the parent is gone."""
    inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    worker = Worker(session, channel.send)

    def read() -> None:
        while True:
            try:
                message = channel.receive()
            except ChannelClosedError:
                inbox.put(None)
                return
            if message["op"] == "cancel":
                worker.interrupt(message)
            inbox.put(message)

    threading.Thread(target=read, name="reader", daemon=True).start()
    operations = {
        "open": worker.open,
        "configure": worker.configure,
        "add": worker.add,
        "cancel": worker.cancel,
    }
    while True:
        try:
            message = inbox.get(block=worker.is_idle)
        except queue.Empty:
            try:
                worker.step()
            except EngineError as error:
                worker.fail(error)
            continue
        if message is None or message["op"] == "close":
            session.close()
            return
        operations[str(message["op"])](message)


def main(argv: Sequence[str] | None = None) -> None:
    """Run as `python -P -m service.generator.worker`."""
    parser = argparse.ArgumentParser(prog="service.generator.worker")
    parser.add_argument("--reference", required=True, help="module:Class of the session")
    parser.add_argument("--read-fd", type=int, required=True)
    parser.add_argument("--write-fd", type=int, required=True)
    options = parser.parse_args(argv)
    channel = Channel(options.read_fd, options.write_fd)
    try:
        session = cast("Callable[[], Session]", resolve(options.reference))()
        serve(channel, session)
    except (EngineError, ImportError, OSError) as error:
        channel.send({"event": "fatal", "message": " ".join(str(error).split()) or type(error).__name__})
    except ChannelClosedError:
        return


if __name__ == "__main__":
    main()
