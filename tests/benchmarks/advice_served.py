"""The advice on serving, checked on a service with the demo model in 8 bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median

from profiles.vocabulary import WORKLOADS
from tests.benchmarks.serving import bare
from tests.benchmarks.serving.client import Job, ask
from tests.benchmarks.serving.rows import COMPLETIONS, STREAMS, Prompts, second_turn
from tests.benchmarks.serving.services import Service, ours
from tuner.home import Home
from tuner.models.source import DEMO

PASSES = 5
COLLECT_S = 0.1
SLEEP_MS = 10.0
TOKENS = 64

Cells = tuple[str, str]
"""What was measured, and the finding."""


@contextmanager
def service(folder: Path) -> Iterator[Service]:
    """A service on llama.cpp's defaults with q8_0."""
    home = Home(folder / "home")
    profile = bare.publish(home, DEMO, "llama_cpp", "q8_0", WORKLOADS["chat"])
    with ours(folder, {"profile": profile, "context_tokens": 2048, "parallel": STREAMS}) as running:
        yield running


def request_batches(folder: Path) -> Cells:
    """Eight requests that come within 100 ms: one after another, joining as they come, collected first."""
    prompts = Prompts(1)
    found: dict[str, list[tuple[float, float]]] = {"in turn": [], "joining": [], "collected": []}
    with service(folder) as running:
        for _ in range(PASSES):
            bodies = [prompts.body(tokens=TOKENS) for _ in range(STREAMS)]
            (answers,) = ask(running.port, [Job(COMPLETIONS, bodies)])
            seconds = answers[-1].at_s[-1] - answers[0].began_s
            waits = [answer.at_s[0] - answers[0].began_s for answer in answers]
            found["in turn"].append((STREAMS / seconds, mean(waits)))
            for name, collected in (("joining", False), ("collected", True)):
                comes = [COLLECT_S * number / STREAMS for number in range(STREAMS)]
                jobs = [
                    Job(COMPLETIONS, [prompts.body(tokens=TOKENS)], COLLECT_S if collected else at)
                    for at in comes
                ]
                each = [one[0] for one in ask(running.port, jobs)]
                seconds = max(answer.at_s[-1] for answer in each)
                waited = mean(a.at_s[0] - at for a, at in zip(each, comes, strict=True))
                found[name].append((STREAMS / seconds, waited))
    rates = {name: median(rate for rate, _ in values) for name, values in found.items()}
    waits_ms = {name: 1000 * median(wait for _, wait in values) for name, values in found.items()}
    told = "; ".join(f"{name} {rates[name]:.1f} requests/s, TTFT {waits_ms[name]:.0f} ms" for name in found)
    pays = "a batch pays" if rates["joining"] > rates["in turn"] else "a batch does not pay here"
    waiting = (
        "collecting costs" if waits_ms["collected"] > waits_ms["joining"] else "collecting costs nothing"
    )
    return f"{STREAMS} requests within 100 ms: {told}", f"{pays}; {waiting}"


def kept_conversation(folder: Path) -> Cells:
    """The first token of a second turn beside that of the first one."""
    with service(folder) as running:
        share = second_turn(running, Prompts(2), 1000, "", PASSES).value or 0.0
    verdict = "holds here" if share <= 0.4 else "does not hold here"
    return f"after 1000 tokens the second turn's TTFT is {100 * share:.0f} % of the first's", verdict


def streaming(folder: Path) -> Cells:
    """What a pause after each token would cost."""
    prompts = Prompts(3)
    with service(folder) as running:
        jobs = [[Job(COMPLETIONS, [prompts.body(tokens=TOKENS)])] for _ in range(PASSES)]
        tpot_ms = median(1000 / ask(running.port, job)[0][0].decode_tps for job in jobs)
    slower = (tpot_ms + SLEEP_MS) / tpot_ms
    told = f"a token comes every {tpot_ms:.1f} ms; with {SLEEP_MS:g} ms of sleep, {tpot_ms + SLEEP_MS:.1f} ms"
    return told, f"stream, but don't sleep: {slower:.1f} times slower"
