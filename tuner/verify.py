"""The flow of verifying: a running server against a profile in our own session, by interleaved pairs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from probes.machine import probe
from profiles.records import ProfileRecord
from profiles.vocabulary import Config, Interval, Objective, RoundSamples
from tuner.clock import monotonic_s
from tuner.compare import GRACE_S, decide, first_look
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.errors import NothingFeasibleError, UsageError, WorkerError
from tuner.events import Event, Observer
from tuner.handout import as_search
from tuner.home import Home
from tuner.measurement.asked import Kind
from tuner.measurement.endpoint import Endpoint
from tuner.measurement.measurement import Measurement
from tuner.measurement.metrics import timings
from tuner.measurement.statistics import log_ratios
from tuner.opening import known_store
from tuner.search.budget import Budget, Clock
from tuner.search.load import LoadAwareRunner
from tuner.search.objectives import measured_value, objective_of
from tuner.search.pairs import Sides, Values, plan_pairs, run_pairs
from tuner.search.ports import Runner
from tuner.setup import open_workshop
from tuner.tune import turn_to_measure
from tuner.workshop import Workshop

DEFAULT_BUDGET_S = 120.0
SERVER = "server"
"""Stands for an engine in the configuration of what is not ours."""
WORDS = {"a": "slower", "b": "faster", "no difference": "as fast", "not resolved": "not resolved"}
"""The server against the profile, by which of the two is the better one."""


@dataclass(frozen=True)
class VerifyRequest:
    """What is verified: a profile's id and the base URL of a server that runs on this machine.

    `server_model` is the model's name there; None for a server that has only one.
    """

    profile: str
    url: str
    server_model: str | None = None
    token: str | None = None
    budget_s: float = DEFAULT_BUDGET_S
    wait: bool = False
    storage: str | None = None


def verify(
    request: VerifyRequest, *, home: Home, observer: Observer, clock: Clock = monotonic_s
) -> dict[str, Any]:
    """Measure a server in turn with the profile in our session: the document of `verify --json`.

    Both get the workload's lengths and another prompt each time; ours runs in a fresh process for each pair,
    the server is the one that runs. Raises ServerError for a server that can't be measured, NotFoundError for
    an unknown profile, and what opening model and engine raises.
    """
    with (
        Endpoint(request.url, token=request.token, model=request.server_model or "") as endpoint,
        known_store(home, request.storage) as store,
    ):
        profile = store.profile(request.profile)
        endpoint.choose_model()
        with (
            closing(open_workshop(as_search(store, profile), probe(), store, home, observer)) as shop,
            turn_to_measure(home, request.wait, observer),
        ):
            if profile.fingerprint != shop.machine.fingerprint:
                raise UsageError(
                    f"{profile.id} is of another machine ({profile.fingerprint}): verify it there, or first"
                    " search here"
                )
            return _measure(shop, profile, endpoint, Budget.begin(clock, request.budget_s))


def _measure(shop: Workshop, profile: ProfileRecord, endpoint: Endpoint, budget: Budget) -> dict[str, Any]:
    workload, objective = shop.workload, objective_of(shop.workload)
    sides = profile.config, Config(SERVER, endpoint.model)
    rounds: tuple[list[RoundSamples], list[RoundSamples]] = ([], [])

    def keep(_values: Values, measured: Sides) -> None:
        for side in range(2):
            rounds[side].extend(measured[side].rounds)

    shop.remaining_s = lambda: budget.left_s + GRACE_S
    with shop.bench(seed=0) as bench:
        ours = LoadAwareRunner(bench, observer=shop.observer)
        runner = _Beside(ours, endpoint, sides[1], shop)
        shop.observer(Event("stage", "a first look at either side"))
        endpoint.calibrate(workload.prompt_tokens)
        names = profile.id, endpoint.url
        looks = [first_look(runner, n, c, objective, workload) for n, c in zip(names, sides, strict=True)]
        plan = plan_pairs(looks[0][0], looks[1][0], looks[0][1] / 2, budget.total_s, workload)
        shop.observer(Event("stage", f"pairs of profile and server, full rounds in each: {plan.rounds}"))
        try:
            decision = run_pairs(
                runner,
                sides,
                lambda samples: measured_value(objective, workload, samples),
                lambda values: log_ratios(values[:1], values[1:])[0],
                lambda logs, final: decide(logs, objective, final=final),
                plan=plan,
                budget=budget,
                keep=keep,
                observer=shop.observer,
            )
        except WorkerError as failure:
            raise NothingFeasibleError(
                f"too few pairs could be measured: {failure.reason}; a longer --budget may help"
            ) from failure
    interval, verdict = decision.found
    speed = _speed(interval, objective)
    return {
        "profile": {"id": profile.id, "status": str(profile.status), **profile.config.to_json()},
        "server": {"url": endpoint.url, "model": endpoint.model},
        "workload": workload.to_json(),
        "metric": objective.metric,
        "conditions": ours.conditions,
        "ours": timings(rounds[0], workload),
        "theirs": timings(rounds[1], workload),
        "speed": asdict(speed),
        "verdict": WORDS[verdict],
        "serving_tax": {
            "estimate": 1 / speed.estimate - 1, "low": 1 / speed.high - 1, "high": 1 / speed.low - 1,
        },
        **_promise(profile, speed),
        "pairs": len(decision.pairs),
        "dropped_rounds": ours.dropped,
        "notes": list(endpoint.notes),
        "elapsed_s": round(budget.elapsed_s, 1),
    }  # fmt: skip


def _speed(ours_over_theirs: Interval, objective: Objective) -> Interval:
    """The server's speed relative to ours: 0.9 is a tenth slower."""
    ratio = ours_over_theirs
    if objective.direction == "minimize":
        return ratio
    return Interval(1 / ratio.estimate, 1 / ratio.high, 1 / ratio.low, ratio.confidence)


def _promise(profile: ProfileRecord, speed: Interval) -> dict[str, Any]:
    """What the profile promised over the default, what the server reaches of it, and the share of the gain.

    The promise is taken at its estimate: its own interval, of another day, is beside it. None where the
    profile promises no gain.
    """
    promised = profile.speedup
    if promised is None or promised.low <= 1.0:
        return {
            "promised": None if promised is None else asdict(promised),
            "reached": None,
            "gain_kept": None,
        }
    reached = {name: promised.estimate * getattr(speed, name) for name in ("estimate", "low", "high")}
    kept = {name: (value - 1) / (promised.estimate - 1) for name, value in reached.items()}
    return {"promised": asdict(promised), "reached": reached, "gain_kept": kept}


@dataclass(frozen=True)
class _Beside:
    """A runner of our configurations that asks a server for the one that stands for it."""

    ours: Runner
    endpoint: Endpoint
    target: Config
    shop: Workshop

    def measure(
        self,
        config: Config,
        *,
        rounds: int,
        kind: Kind = "short",
        phases: frozenset[Phase] = BOTH_PHASES,
        fresh: bool = False,
    ) -> Measurement:
        """As the bench's; a server runs whole workloads only, and is never started anew."""
        if config != self.target:
            return self.ours.measure(config, rounds=rounds, kind=kind, phases=phases, fresh=fresh)
        began_s = monotonic_s()
        samples: Sequence[RoundSamples] = [self.endpoint.round(self.shop.workload) for _ in range(rounds)]
        seconds = monotonic_s() - began_s
        return Measurement(
            rounds=tuple(samples),
            requested={},
            effective={},
            unknown=(),
            load_ms=0.0,
            first_request_ms=0.0,
            seconds=seconds,
            generation_seconds=seconds,
            memory={},
            switched=None,
        )
