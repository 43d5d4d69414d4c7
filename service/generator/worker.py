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

from service.generator.conversation import Conversations
from service.generator.text import TextAssembler
from tuner.engines import resolve
from tuner.engines.base import EngineError, Sampling, Session
from tuner.measurement.protocol import Channel, ChannelClosedError

Message = Mapping[str, Any]

CONVERSATIONS = 64
"""Texts whose token ids are remembered."""


class RefusedError(Exception):
    """A request that can't be served as asked; `code` and `param` name why."""

    def __init__(self, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


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
    pieces: list[str] = field(default_factory=list)


class Worker:
    """Serves messages with a session: what is in flight, what is said about it."""

    def __init__(self, session: Session, send: Callable[[Mapping[str, object]], None]) -> None:
        self._session = session
        self._send = send
        self._answers: dict[int, _Answer] = {}
        self._sequences: dict[int, int] = {}
        self._conversations = Conversations(CONVERSATIONS)
        self._context_tokens = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being generated."""
        return not self._answers

    def open(self, message: Message) -> None:
        """Load the model, make its context, and say so."""
        began = self._session.now_ns()
        self._session.load(Path(message["path"]), message["load_settings"])
        self._context_tokens = int(message["context_tokens"])
        self._session.configure(message["run_settings"], self._context_tokens, int(message["streams"]))
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
            self._send(
                {
                    "event": "refused",
                    "key": key,
                    "message": str(error),
                    "code": error.code,
                    "param": error.param,
                }
            )
            return
        except EngineError as error:
            self._send(
                {"event": "refused", "key": key, "message": str(error), "code": "engine", "param": None}
            )
            return
        self._answers[answer.sequence] = answer
        self._sequences[key] = answer.sequence
        self._send({"event": "accepted", "key": key, "prompt_tokens": len(answer.prompt)})

    def _begin(self, key: int, message: Message) -> _Answer:
        submitted_ns = self._session.now_ns()
        text, prompt = self._prompt(message)
        room = self._context_tokens - len(prompt)
        wanted = message.get("max_tokens")
        if room < 1 or (wanted is not None and wanted > room):
            asked = "" if wanted is None else f" and max_tokens {wanted}"
            raise RefusedError(
                f"the prompt has {len(prompt)} tokens{asked}: the context holds {self._context_tokens}",
                "context_length_exceeded",
                "messages" if "messages" in message else "prompt",
            )
        sequence = self._session.add(
            prompt,
            room if wanted is None else int(wanted),
            sampling=Sampling(**message["sampling"]),
            ignore_eos=bool(message.get("ignore_eos", False)),
            reuse_prefix=True,
        )
        return _Answer(key, sequence, text, prompt, TextAssembler(message.get("stop", ())), submitted_ns)

    def _prompt(self, message: Message) -> tuple[str, list[int]]:
        """The text that is continued with its token ids; old turns are dropped only where that was asked."""
        if "messages" not in message:
            text = str(message["prompt"])
            return text, self._tokens(text)
        messages = list(message["messages"])
        while True:
            rendered = self._session.chat_prompt(messages)
            if rendered is None:
                raise RefusedError(
                    "the model has no chat template: use /v1/completions", "no_chat_template", "messages"
                )
            tokens = self._tokens(rendered)
            reserve = message.get("max_tokens") or 1
            shorter = shortened(messages) if message.get("drop_old_turns") else None
            if len(tokens) + reserve <= self._context_tokens or shorter is None:
                return rendered, tokens
            messages = shorter

    def _tokens(self, text: str) -> list[int]:
        if not text:
            raise RefusedError("the prompt is empty", "empty_prompt", "prompt")
        return self._conversations.tokens(text, self._session.tokenize)

    def cancel(self, message: Message) -> None:
        """Forget a request; its sequence leaves the batch."""
        sequence = self._sequences.pop(int(message["key"]), None)
        if sequence is not None:
            self._session.cancel(sequence)
            self._remember(self._answers.pop(sequence))

    def interrupt(self, message: Message) -> None:
        """Called from the reading thread: let a prompt that is being computed stop at once."""
        sequence = self._sequences.get(int(message["key"]))
        if sequence is not None:
            self._session.cancel(sequence)

    def step(self) -> None:
        """One batch; what it made is sent as one message."""
        tokens = self._session.step()
        now_ns = self._session.now_ns()
        pieces = []
        ended = []
        for token in tokens:
            answer = self._answers.get(token.sequence)
            if answer is None:
                continue
            answer.first_ns = answer.first_ns or now_ns
            answer.last_ns = now_ns
            answer.made.append(token.token)
            piece = answer.assembler.feed(
                self._session.detokenize([token.token]), final=token.finish is not None
            )
            answer.pieces.append(piece)
            finish = "stop" if answer.assembler.stopped else token.finish
            if finish is not None and token.finish is None:
                self._session.cancel(token.sequence)
            pieces.append([answer.key, piece])
            if finish is not None:
                ended.append((answer, finish))
        if pieces:
            self._send({"event": "tokens", "pieces": pieces})
        for answer, finish in ended:
            self._end(answer, finish)

    def _end(self, answer: _Answer, finish: str) -> None:
        del self._answers[answer.sequence], self._sequences[answer.key]
        made = len(answer.made)
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

    def _remember(self, answer: _Answer) -> None:
        """Keep the ids of the conversation so far; a last token that ended it is no part of its text."""
        made = answer.made[:-1]
        answered = self._session.detokenize(made).decode("utf-8", "replace")
        self._conversations.remember(answer.text + answered, [*answer.prompt, *made])

    def fail(self, error: EngineError) -> None:
        """End every request with what the engine said."""
        for answer in tuple(self._answers.values()):
            self._session.cancel(answer.sequence)
            self._send({"event": "failed", "key": answer.key, "message": str(error)})
        self._answers.clear()
        self._sequences.clear()


def shortened(messages: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]] | None:
    """The messages without their oldest turn: the system prompt and the last message stay; None where
    no whole turn is left to drop."""
    head = [message for message in messages[:1] if message["role"] == "system"]
    turns = list(messages[len(head) :])
    # A turn begins with a user's message: what follows it up to the next one goes with it.
    next_turn = next((at for at in range(1, len(turns)) if turns[at]["role"] == "user"), None)
    return None if next_turn is None else [*head, *turns[next_turn:]]


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
    operations = {"open": worker.open, "add": worker.add, "cancel": worker.cancel}
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
