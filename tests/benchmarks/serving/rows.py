"""What is measured of a service, a function for each promise, as rows with what was wanted and kept."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles
from typing import Any

import httpx

from tests.benchmarks.serving.bare import times_s
from tests.benchmarks.serving.client import Answer, Job, ask
from tests.benchmarks.serving.services import Service
from tuner.measurement.isolation import Worker

COMPLETIONS = "/v1/completions"
WORDS = ("sun", "moon", "river", "stone", "cloud", "forest", "winter", "bread", "water", "light")
PROMPT_WORDS, OUTPUT_TOKENS = 100, 128
STREAMS = 8
RATES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Requests a second that are tried one after another."""
RATE_S = 8.0
RATE_TOKENS = 64
WHOLE = 0.75
"""Of the tokens that were asked as pieces: one piece may hold two tokens that make a character."""


@dataclass(frozen=True)
class Row:
    """One number with what was wanted of it; `kept` is None where nothing was, or it was not measured."""

    what: str
    value: float | None
    wanted: str
    kept: bool | None
    note: str = ""


def at_least(what: str, value: float, limit: float, note: str = "") -> Row:
    return Row(what, value, f">= {limit:g}", value >= limit, note)


def at_most(what: str, value: float, limit: float, note: str = "") -> Row:
    return Row(what, value, f"<= {limit:g}", value <= limit, note)


def left_out(what: str, wanted: str, reason: object) -> Row:
    return Row(what, None, wanted, None, f"not measured: {reason}")


class Prompts:
    """New ones each time, of about the same length."""

    def __init__(self, seed: int, also: Mapping[str, Any] | None = None) -> None:
        """`also` is asked with each: what other servers call `ignore_eos`."""
        self._random = random.Random(seed)
        self._also = dict(also or {})

    def text(self, words: int = PROMPT_WORDS) -> str:
        return " ".join(self._random.choices(WORDS, k=words))

    def body(self, words: int = PROMPT_WORDS, tokens: int = OUTPUT_TOKENS) -> dict[str, Any]:
        asked = {"prompt": self.text(words), "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        return asked | self._also


def one_stream(service: Service, bare: Worker, prompts: Prompts, passes: int) -> list[Row]:
    """Tokens per second and TTFT over SSE, on a connection that was kept, and in the bare loop by turns.

    The machine's speed moves from minute to minute: medians are of what two neighbours in time show.
    """
    over_http: list[Answer] = []
    in_loop: list[list[float]] = []

    def by_http() -> None:
        # The first request opens the connection: TTFT is the second one's.
        bodies = [prompts.body(4, 2), prompts.body()]
        over_http.append(ask(service.port, [Job(COMPLETIONS, bodies)])[0][1])

    def by_loop() -> None:
        in_loop.append(times_s(bare, prompts.text(), OUTPUT_TOKENS))

    for number in range(2 * passes):
        for measure in (by_http, by_loop) if number % 2 == 0 else (by_loop, by_http):
            measure()
    rates = [(len(times) - 1) / (times[-1] - times[0]) for times in in_loop]
    share = median(answer.decode_tps / rate for answer, rate in zip(over_http, rates, strict=True))
    tax_ms = 1000 * median(a.ttft_s - times[0] for a, times in zip(over_http, in_loop, strict=True))
    note = f"{median(answer.decode_tps for answer in over_http):.1f} of {median(rates):.1f} tokens/s"
    return [
        at_least("one stream: tokens/s over the bare loop's", share, 0.95, note),
        at_most("one stream: TTFT beyond the bare loop's, ms", tax_ms, 5.0),
    ]


@dataclass(frozen=True)
class Together:
    """Streams that ran at the same time, in tokens per second."""

    decode_tps: float
    whole_tps: float
    slowest_share: float


def together(service: Service, prompts: Prompts, streams: int, passes: int) -> Together:
    """Medians over passes: all streams' tokens from the last first token to the first end, and from the
    request to the end of all; the slowest stream's rate over the mean."""
    found = []
    for _ in range(passes):
        jobs = [Job(COMPLETIONS, [prompts.body()]) for _ in range(streams)]
        answers = [answers[0] for answers in ask(service.port, jobs)]
        begins, ends = max(a.at_s[0] for a in answers), min(a.at_s[-1] for a in answers)
        between = sum(begins < at <= ends for a in answers for at in a.at_s)
        every = sum(len(a.at_s) for a in answers)
        whole_s = max(a.at_s[-1] for a in answers) - min(a.began_s for a in answers)
        rates = [a.decode_tps for a in answers]
        decode = between / (ends - begins) if ends > begins else 0.0
        found.append(Together(decode, every / whole_s, min(rates) / mean(rates)))
    return Together(
        median(one.decode_tps for one in found),
        median(one.whole_tps for one in found),
        median(one.slowest_share for one in found),
    )


def eight_streams(one: Together, eight: Together) -> list[Row]:
    """What a batch gains on the same file."""
    return [
        at_least(
            f"{STREAMS} streams: decode over one stream's",
            eight.decode_tps / one.decode_tps,
            1.8,
            f"{eight.decode_tps:.0f} and {one.decode_tps:.0f} tokens/s",
        ),
        at_least(f"{STREAMS} streams: end to end over one stream's", eight.whole_tps / one.whole_tps, 1.5),
        at_least(f"{STREAMS} streams: the slowest over the mean", eight.slowest_share, 0.5),
    ]


def second_turn(service: Service, prompts: Prompts, tokens: int, what: str, passes: int) -> Row:
    """TTFT of a second turn with about 32 new tokens over that of the first one."""
    shares = []
    for _ in range(passes):
        first = {**prompts.body(tokens=16), "prompt": prompts.text(int(tokens * 0.9))}
        before = ask(service.port, [Job(COMPLETIONS, [first])])[0][0].ttft_s
        # The same once more, for its text: it is in the cache and takes no time.
        answer = _text(service.port, first)
        second = {**first, "prompt": f"{first['prompt']}{answer} {prompts.text(24)}"}
        after = ask(service.port, [Job(COMPLETIONS, [second])])[0][0].ttft_s
        shares.append(after / before)
    return at_most(what, median(shares), 0.1)


def _text(port: int, body: dict[str, Any]) -> str:
    answer = httpx.post(f"http://127.0.0.1:{port}{COMPLETIONS}", json=body, timeout=120).json()
    return str(answer["choices"][0]["text"])


def best_profile(service: Service, query: str, prompts: Prompts, passes: int) -> list[Row]:
    """Requests per second of `GET /v1/profiles/best`, and what 50 a second cost a running stream."""
    path = f"/v1/profiles/best?{query}"
    rows = []
    program = shutil.which("wrk")
    if program is None:
        rows.append(left_out("best profile: requests/s at 16 connections", ">= 500", "wrk: make system-deps"))
    else:
        argv = [program, "-t2", "-c16", "-d10s", "--latency", f"http://127.0.0.1:{service.port}{path}"]
        told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        (rate,) = map(float, re.findall(r"Requests/sec:\s+([\d.]+)", told))
        found = re.search(r"99%\s+([\d.]+)(us|ms|s)\b", told)
        p99_ms = float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[found[2]] if found else float("inf")
        bad = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
        rows.append(at_least("best profile: requests/s at 16 connections", 0.0 if bad else rate, 500))
        rows.append(at_most("best profile: p99, ms", p99_ms, 50))
    beside: list[float] = []
    alone: list[float] = []
    for _ in range(passes):
        gets = [Job(path, at_s=number / 50) for number in range(100)]
        for others, found_tps in (((), alone), (gets, beside)):
            answers = ask(service.port, [Job(COMPLETIONS, [prompts.body()]), *others])
            found_tps.append(answers[0][0].decode_tps)
    rows.append(
        at_least("best profile: a stream's speed beside 50 requests/s", median(beside) / median(alone), 0.9)
    )
    return rows


def idle(service: Service, seconds: float) -> Row:
    """CPU time of a service that nobody asks, as a share of one core."""
    time.sleep(2.0)
    before, began = service.cpu_s(), time.monotonic()
    time.sleep(seconds)
    share = (service.cpu_s() - before) / (time.monotonic() - began)
    return at_most("idle: share of a core", share, 0.01)


def memory(service: Service, prompts: Prompts, count: int) -> Row:
    """Growth of resident memory over distinct prompts, after the first quarter of them."""
    first = count // 4
    for words in (first, count - first):
        bodies = [prompts.body(40, 4) for _ in range(words)]
        ask(service.port, [Job(COMPLETIONS, bodies)])
        if words == first:
            before = service.rss_mib()
    growth = service.rss_mib() / before - 1
    return at_most(f"memory: growth over {count - first} prompts", growth, 0.05, f"from {before:.0f} MiB")


def highest_rate(port: int, prompts: Prompts) -> float:
    """The most requests a second, arriving whenever they like, at which TTFT's p95 stays within a second.

    Raises RuntimeError where an answer ends before its tokens: a server must not gain by cutting off.
    """
    kept = 0.0
    for rate in RATES:
        count = max(4, round(rate * RATE_S))
        jobs = [
            Job(COMPLETIONS, [prompts.body(PROMPT_WORDS, RATE_TOKENS)], number / rate)
            for number in range(count)
        ]
        answers = [one[0] for one in ask(port, jobs)]
        shortest = min(len(answer.at_s) for answer in answers)
        if shortest < WHOLE * RATE_TOKENS:
            raise RuntimeError(f"an answer ended after {shortest} pieces of {RATE_TOKENS} tokens")
        if quantiles([answer.ttft_s for answer in answers], n=20)[-1] > 1.0:
            break
        kept = rate
    return kept


def table(rows: Sequence[Row]) -> str:
    """The rows for people."""
    words = {True: "yes", False: "NO", None: "-"}
    lines = [("what", "measured", "wanted", "kept", "")]
    lines += [
        (row.what, "-" if row.value is None else f"{row.value:.3g}", row.wanted, words[row.kept], row.note)
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    padded = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join(padded) + "\n"
