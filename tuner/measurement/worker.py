"""The worker process: one engine, opened once, that does what the parent's messages ask for."""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from profiles.vocabulary import Setting, TrialStatus
from tuner.engines import resolve
from tuner.engines.base import EngineError, Scorer, Session
from tuner.measurement import counters, placement
from tuner.measurement.collapse import Watch
from tuner.measurement.protocol import Channel, ChannelClosedError
from tuner.measurement.rounds import Interruptible, InvalidRoundError, VirtualTime, run_round

Payload = Mapping[str, Any]
Handler = Callable[[Payload], dict[str, object]]


class SessionOperations:
    """What can be asked of a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._usual_ns: float | None = None

    def load(self, payload: Payload) -> dict[str, object]:
        """Open the model; its time is on the session's clock."""
        settings = cast("Mapping[str, Setting]", payload["settings"])
        started = self.session.now_ns()
        self.session.load(Path(payload["path"]), settings)
        load_ms = (self.session.now_ns() - started) / 1e6
        built = self.session.built()
        # What lives now lives to the end: the collector need not look at it again.
        gc.freeze()
        return {
            "load_ms": load_ms,
            "version": built.version,
            "build": built.build,
            "facts": dict(built.facts),
            **_placed(),
        }

    def configure(self, payload: Payload) -> dict[str, object]:
        """Apply the settings of context and run scope; all that are held come back, host-wide ones too."""
        self.session.configure(payload["settings"], payload["context_tokens"], payload["streams"])
        self._usual_ns = None
        host = placement.held(os.environ, counters.memory()["huge_pages_mib"])
        return {"effective": {**host, **self.session.effective()}}

    def round(self, payload: Payload) -> dict[str, object]:
        """One round; the times of its tokens come back when it is over.

        With `watched_threads` it is watched for a collapse, against the sound rounds since the settings were
        last applied.
        """
        watch = self._watch(payload["watched_threads"]) if payload.get("watched_threads") else None
        trace = run_round(
            self.session,
            payload["prompts"],
            payload["output_tokens"],
            reuse_prefix=payload["reuse_prefix"],
            deeper=payload.get("deeper", ()),
            neighbours=payload.get("neighbours", 0),
            watch=watch,
        )
        if watch is not None and trace.collapsed is None:
            known = [gap for gap in (self._usual_ns, watch.median_gap_ns) if gap is not None]
            self._usual_ns = min(known, default=None)
        return {"token_ns": trace.token_ns, "facts": dict(trace.facts), "collapsed": trace.collapsed}

    def _watch(self, threads: int) -> Watch:
        session = self.session
        virtual = session if isinstance(session, VirtualTime) else None
        return Watch(
            threads,
            (lambda: virtual.counters()["cpu_ns"]) if virtual else time.process_time_ns,
            usual_ns=self._usual_ns,
            interrupt=session.interrupt if isinstance(session, Interruptible) else None,
        )

    def memory(self, payload: Payload) -> dict[str, object]:
        """Resident memory in MiB, with its peak since the last `reset_peak`."""
        del payload
        return dict(counters.memory())

    def reset_peak(self, payload: Payload) -> dict[str, object]:
        """Let the peak of resident memory begin anew."""
        del payload
        return {"reset": counters.reset_peak()}

    def tokenize(self, payload: Payload) -> dict[str, object]:
        """Token ids of a text."""
        return {"tokens": self.session.tokenize(payload["text"])}

    def chat_prompt(self, payload: Payload) -> dict[str, object]:
        """Messages in the model's chat template, or null."""
        return {"prompt": self.session.chat_prompt(payload["messages"])}

    def handler(self, op: str) -> Handler | None:
        """The method of an operation; None for an unknown one."""
        known: dict[str, Handler] = {
            "load": self.load,
            "configure": self.configure,
            "round": self.round,
            "memory": self.memory,
            "reset_peak": self.reset_peak,
            "tokenize": self.tokenize,
            "chat_prompt": self.chat_prompt,
        }
        return known.get(op)

    def close(self) -> None:
        """Free the engine."""
        self.session.close()


class ScorerOperations:
    """What can be asked of a scorer."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def handler(self, op: str) -> Handler | None:
        """The function of an operation; None for an unknown one."""
        if op == "load":
            return self.load
        if not op.startswith("score_"):
            return None
        from tuner.measurement import scoring

        return lambda payload: dict(scoring.handle(op, self.scorer, dict(payload)))

    def load(self, payload: Payload) -> dict[str, object]:
        """Open the model."""
        self.scorer.load(Path(payload["path"]), payload["settings"])
        return _placed()

    def close(self) -> None:
        """Free the engine."""
        self.scorer.close()


def serve(channel: Channel, role: str, reference: str) -> None:
    """Answer requests until `close` or until the parent is gone.

    The engine is imported for the first request, when affinity and environment have long been set.
    """
    operations: SessionOperations | ScorerOperations | None = None
    while True:
        try:
            request = channel.receive()
        except ChannelClosedError:
            return
        op = str(request["op"])
        payload = cast("Payload", request["payload"])
        try:
            if operations is None:
                opened = cast("Callable[[], Any]", resolve(reference))()
                operations = SessionOperations(opened) if role == "session" else ScorerOperations(opened)
            if op == "hello":
                result: dict[str, object] = {"pid": os.getpid(), **_placed()}
            elif op == "close":
                operations.close()
                result = {}
            else:
                handler = operations.handler(op)
                if handler is None:
                    raise EngineError(f"a {role} has no operation '{op}'")
                result = handler(payload)
        except InvalidRoundError as error:
            answer: dict[str, object] = _failure(TrialStatus.INVALID, str(error))
        except MemoryError:
            answer = _failure(TrialStatus.OUT_OF_MEMORY, "memory could not be allocated")
        except (EngineError, ImportError, OSError) as error:
            answer = _failure(TrialStatus.ENGINE_ERROR, str(error) or type(error).__name__)
        else:
            answer = {"result": result}
        channel.send({"id": request["id"], **answer})
        if op == "close":
            return


def _placed() -> dict[str, object]:
    return {"affinities": counters.thread_affinities(), "memory_policies": counters.memory_policies()}


def _failure(status: TrialStatus, reason: str) -> dict[str, object]:
    return {"error": {"status": status.value, "reason": " ".join(reason.split())}}


def main(argv: Sequence[str] | None = None) -> None:
    """Run as `python -P -m tuner.measurement.worker`."""
    parser = argparse.ArgumentParser(prog="tuner.measurement.worker")
    parser.add_argument("--role", choices=("session", "scorer"), required=True)
    parser.add_argument("--reference", required=True, help="module:Class of the session or scorer")
    parser.add_argument("--read-fd", type=int, required=True)
    parser.add_argument("--write-fd", type=int, required=True)
    options = parser.parse_args(argv)
    channel = Channel(options.read_fd, options.write_fd)
    try:
        serve(channel, options.role, options.reference)
    except ChannelClosedError:
        return


if __name__ == "__main__":
    main()
