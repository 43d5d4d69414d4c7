"""What an OpenAI-compatible server says: the pieces of an answer, its models, why it refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import httpx2


@dataclass(frozen=True)
class Answer:
    """One streamed answer: nanoseconds after its submission at which each piece of text came.

    `tokens` is what the server says, or what follows from its having reached the limit; else the pieces.
    """

    pieces_ns: tuple[int, ...]
    tokens: int

    def samples(self, wanted: int) -> tuple[float, tuple[float, ...], float]:
        """TTFT, gaps and response time in ms for exactly `wanted` tokens.

        Where a piece is a token they are as seen. Where pieces held several tokens, or another number came,
        every gap is the mean one, and the response time follows from it.
        """
        at_ms = [ns / 1e6 for ns in self.pieces_ns]
        if self.tokens == len(at_ms) == wanted:
            gaps = tuple(later - earlier for earlier, later in pairwise(at_ms))
        else:
            gaps = ((at_ms[-1] - at_ms[0]) / (self.tokens - 1),) * (wanted - 1)
        return at_ms[0], gaps, at_ms[0] + sum(gaps)


class Reading:
    """What a stream said so far."""

    def __init__(self) -> None:
        self.tokens: int | None = None
        self.finish: str | None = None
        self.error: str | None = None
        self.is_done = False

    def take(self, data: str) -> bool:
        """Read one event; whether it brought text."""
        try:
            event = json.loads(data)
        except ValueError:
            self.error = f"an event that is no JSON: {data[:60]}"
            return False
        if not isinstance(event, dict):
            return False
        if event.get("error"):
            said = event["error"]
            self.error = str(said.get("message", said) if isinstance(said, dict) else said)
        usage = event.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self.tokens = usage["completion_tokens"] or None
        choices = event.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return False
        self.finish = choices[0].get("finish_reason") or self.finish
        delta = choices[0].get("delta")
        said = delta if isinstance(delta, dict) else {}
        return bool(choices[0].get("text") or said.get("content") or said.get("reasoning_content"))


def model_names(document: Mapping[str, object]) -> list[str]:
    """The models of the answer to /v1/models."""
    listed = document.get("data")
    models = listed if isinstance(listed, list) else []
    return [str(model["id"]) for model in models if isinstance(model, dict) and model.get("id")]


def error_text(response: httpx2.Response) -> str:
    """The server's own message, in whichever of the usual forms, at most a line of it."""
    try:
        document = response.json()
    except ValueError:
        document = response.text
    said = document.get("error", document.get("detail", "")) if isinstance(document, dict) else document
    said = said.get("message", said) if isinstance(said, dict) else said
    return " ".join(str(said).split())[:200] or response.reason_phrase
