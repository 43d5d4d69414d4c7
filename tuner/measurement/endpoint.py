"""Times the answers of a running OpenAI-compatible server, as its client sees them."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import httpx2

from profiles.vocabulary import RoundSamples, Workload
from tuner.errors import ServerError, UsageError
from tuner.measurement.answers import Answer, Reading, error_text, model_names

CONNECT_S = 5.0
SILENCE_S = 120.0
"""A server that sends nothing for so long is given up."""
FEWEST_TOKENS = 8
"""From fewer no speed of decoding can be told."""
CALIBRATIONS = 3
CLOSE = 0.02
"""Prompts shorter than wanted by no more than this share are left as they are."""
_WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school",
    "state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week",
    "company", "system", "program", "question", "work", "government", "number", "night", "point", "home",
    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study",
)  # fmt: skip
"""Common words: nearly every vocabulary has each of them, with its leading space, as one token."""


@dataclass
class Endpoint:
    """A server by its base URL, with or without the final /v1; a context manager.

    `notes` tell what could not be measured as asked, each once. All methods raise ServerError, in one line,
    for a server that can't be reached, refuses, does not stream, breaks off or falls silent.
    """

    url: str
    token: str | None = None
    model: str = ""
    silence_s: float = SILENCE_S
    seed: int = 0
    notes: list[str] = field(default_factory=list)
    _chat: bool = False
    _extras: bool = True
    _words: int = 0
    _client: httpx2.Client = field(init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        base = self.url.rstrip("/")
        base = base if re.search(r"/v\d+$", base) else f"{base}/v1"
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            parsed = httpx2.URL(base)
        except httpx2.InvalidURL:
            parsed = httpx2.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageError(f"--url '{self.url}' is no address: write it like http://127.0.0.1:8080")
        self._client = httpx2.Client(
            base_url=base,
            headers=headers,
            timeout=httpx2.Timeout(self.silence_s, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None),
            # A proxy would be timed with it.
            trust_env=False,
        )
        self._random = random.Random(f"endpoint:{self.seed}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.close()

    def choose_model(self) -> str:
        """The name to ask for: the given one if the server has it, else its only one.

        Raises UsageError where the server has several and none was given, or not the given one.
        """
        response = self._get("models")
        if response.status_code == 404:
            self.model = self.model or "default"
            return self.model
        names = model_names(self._checked(response))
        listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        if self.model:
            if names and self.model not in names and f"{self.model}:latest" not in names:
                raise UsageError(f"{self.url} has no model '{self.model}': it has {listed}")
        elif len(names) == 1:
            self.model = names[0]
        elif names:
            raise UsageError(f"{self.url} has several models: name one with --model: {listed}")
        else:
            raise ServerError(f"{self.url} has no model: load one first")
        return self.model

    def calibrate(self, prompt_tokens: int) -> None:
        """Find how long a prompt must be for the server to count `prompt_tokens` of it; warms it up too."""
        self._words = prompt_tokens
        told: int | None = None
        for _ in range(CALIBRATIONS):
            told = self._prompt_tokens()
            if told is None:
                self._note("it does not tell how long prompts are: a word was taken for a token")
                return
            # Never longer: the server's context may hold just the workload.
            if 0 <= prompt_tokens - told <= CLOSE * prompt_tokens:
                return
            per_word = told / self._words
            self._words = max(1, self._words - round((told - prompt_tokens) / per_word))
        self._note(f"its prompts have {told} tokens, {prompt_tokens} were asked: its TTFT is of those")

    def round(self, workload: Workload) -> RoundSamples:
        """One request for each stream, all at once, each with a new prompt of the workload's length."""
        prompts = [self._prompt() for _ in range(workload.streams)]
        started_ns = time.perf_counter_ns()
        with ThreadPoolExecutor(workload.streams) as pool:
            asked = [
                pool.submit(self._stream, prompt, workload.output_tokens, started_ns) for prompt in prompts
            ]
            answers = [future.result() for future in asked]
        timed = [answer.samples(workload.output_tokens) for answer in answers]
        return RoundSamples(
            kind="full",
            ttft_ms=tuple(ttft_ms for ttft_ms, _, _ in timed),
            gaps_ms=tuple(gaps for _, gaps, _ in timed),
            response_ms=tuple(response_ms for _, _, response_ms in timed),
            wall_ms=max(answer.pieces_ns[-1] for answer in answers) / 1e6,
        )

    # --- requests ------------------------------------------------------------------------------

    def _prompt(self) -> str:
        return " ".join(self._random.choices(_WORDS, k=self._words))

    def _body(self, prompt: str, output_tokens: int, *, stream: bool) -> dict[str, Any]:
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}]} if self._chat else {}
        body = {
            "model": self.model,
            "max_tokens": output_tokens,
            "temperature": 0.0,
            "stream": stream,
            **(asked or {"prompt": prompt}),
        }
        if self._extras:
            body["ignore_eos"] = True
        if self._extras and stream:
            body["stream_options"] = {"include_usage": True}
        return body

    @property
    def _path(self) -> str:
        return "chat/completions" if self._chat else "completions"

    def _prompt_tokens(self) -> int | None:
        """What the server counts in a prompt; settles which requests it takes."""
        response = self._post(self._prompt(), 1)
        if response.status_code in (404, 405, 501) and not self._chat:
            self._chat = True
            response = self._post(self._prompt(), 1)
        if response.status_code in (400, 422) and self._extras:
            self._extras = False
            response = self._post(self._prompt(), 1)
            if response.is_success:
                self._note("it refuses ignore_eos: answers may end early")
        usage = self._checked(response).get("usage")
        told = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
        return told if isinstance(told, int) and told > 0 else None

    def _post(self, prompt: str, output_tokens: int) -> httpx2.Response:
        try:
            return self._client.post(self._path, json=self._body(prompt, output_tokens, stream=False))
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None

    def _get(self, path: str) -> httpx2.Response:
        try:
            return self._client.get(path)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None

    def _stream(self, prompt: str, wanted: int, started_ns: int) -> Answer:
        pieces: list[int] = []
        reading = Reading()
        body = self._body(prompt, wanted, stream=True)
        try:
            with self._client.stream("POST", self._path, json=body) as response:
                if not response.is_success:
                    response.read()
                    self._checked(response)
                for event in httpx2.EventSource(response):
                    now_ns = time.perf_counter_ns()
                    if event.data == "[DONE]":
                        reading.is_done = True
                        break
                    if reading.take(event.data):
                        pieces.append(now_ns - started_ns)
        except httpx2.SSEError:
            kind = response.headers.get("content-type", "no content type")
            raise ServerError(
                f"{self.url} does not stream: it answered {kind} to stream=true; nothing can be timed"
            ) from None
        except httpx2.TimeoutException:
            raise ServerError(
                f"{self.url} was silent for {self.silence_s:g} s after {len(pieces)} of {wanted} tokens"
            ) from None
        except httpx2.TransportError as error:
            if not pieces:
                raise self._unreachable(error) from None
            raise ServerError(
                f"{self.url} broke off after {len(pieces)} of {wanted} tokens: did it die? see its log"
            ) from None
        if reading.error:
            raise ServerError(f"{self.url} failed after {len(pieces)} of {wanted} tokens: {reading.error}")
        if not reading.is_done and reading.finish is None:
            raise ServerError(f"{self.url} broke off after {len(pieces)} of {wanted} tokens; see its log")
        return self._counted(reading, tuple(pieces), wanted)

    def _counted(self, reading: Reading, pieces: tuple[int, ...], wanted: int) -> Answer:
        reached = wanted if reading.finish == "length" else None
        tokens = reading.tokens or reached or len(pieces)
        if reading.tokens is None and reached is None:
            self._note("it does not tell how many tokens it made: pieces of text were counted")
        if len(pieces) < 2 or tokens < min(FEWEST_TOKENS, wanted):
            raise ServerError(
                f"{self.url} ended its answer after {tokens} of {wanted} tokens ({reading.finish}), in"
                f" {len(pieces)} pieces: too few to time; a server that knows ignore_eos goes on"
            )
        if tokens != wanted:
            self._note(
                f"answers of {tokens} tokens came where {wanted} were asked: response times are computed"
                " from TTFT and the mean gap"
            )
        elif tokens != len(pieces):
            self._note("its pieces of text hold several tokens: gaps are means")
        return Answer(pieces, tokens)

    # --- refusals ------------------------------------------------------------------------------

    def _checked(self, response: httpx2.Response) -> dict[str, Any]:
        """The JSON object of a good answer."""
        said = error_text(response)
        if response.status_code in (401, 403):
            raise ServerError(
                f"{self.url} refuses the token ({response.status_code} {said}): give one with --token-env"
                " or --token-file"
            )
        if not response.is_success:
            raise ServerError(f"{self.url} answered {response.status_code} to {response.url.path}: {said}")
        try:
            document = response.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ServerError(f"{self.url} is no OpenAI-compatible server: {response.url.path} is no JSON")
        return document

    def _unreachable(self, error: httpx2.TransportError) -> ServerError:
        if isinstance(error, httpx2.TimeoutException):
            return ServerError(f"{self.url} does not answer: {type(error).__name__}; is it busy?")
        why = str(error).rpartition("] ")[2] or type(error).__name__
        return ServerError(f"{self.url} can't be reached: {why}; is the server running?")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
