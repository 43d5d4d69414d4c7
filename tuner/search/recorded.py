"""A study read back from the store: its space and its samples, with no engine running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from probes.machine import Machine
from profiles.metrics import METRICS, flat_name
from profiles.records import StudyRecord, TrialRecord
from profiles.store import Store
from profiles.vocabulary import Config, RoundSamples, Setting, TrialStatus
from tuner import engines
from tuner.engines.base import Dimension
from tuner.measurement import placement
from tuner.search.ledger import Ledger
from tuner.search.limits import broken
from tuner.search.objectives import predictions
from tuner.search.space import EngineSpace, Space


@dataclass(frozen=True)
class Recorded:
    """A study as it was measured: `space` holds the variants and values that its trials had.

    `ledger` has the rounds that the search saw, under the conditions of its answer where there are any; those
    of confirmations and of trials that a user declared wrong are not among them.
    """

    study: StudyRecord
    space: Space
    ledger: Ledger
    trials: tuple[TrialRecord, ...]

    def values(self, trial: TrialRecord) -> tuple[float, ...] | None:
        """A trial's value of each of the study's objectives; None while one of them is not known, or it runs.

        A trial's own metrics don't tell: it may have measured one phase only, for another objective.
        """
        estimate = self.ledger.estimate(trial.config)
        if estimate is None or trial.status.failed or trial.status is TrialStatus.RUNNING:
            return None
        known = predictions(self.space.workload, estimate.ttft_ms, estimate.itl_ms)
        found = [{**trial.metrics, **known}.get(flat_name(o.metric)) for o in self.study.objectives]
        return tuple(value for value in found if value is not None) if None not in found else None

    def status(self, trial: TrialRecord) -> TrialStatus:
        """How a trial ended; infeasible also where its quality was judged only later."""
        if trial.status.failed or self.against(trial.config) is None:
            return trial.status
        return TrialStatus.INFEASIBLE

    def against(self, config: Config) -> str | None:
        """Why a configuration may not be published; None where nothing is known against it."""
        own = [trial for trial in self.trials if trial.config == config]
        breaks = broken(self.study.limits, next((trial.metrics for trial in own if trial.metrics), {}))
        if breaks:
            return f"breaks {breaks[0]}"
        key = self.space.quality_key(config)
        judged = self.study.result.get("judged")
        for verdict in judged if isinstance(judged, list) else ():
            same = (verdict["engine"], verdict["variant"]) == (key.engine, key.variant)
            if same and not verdict["keeps"] and self._is_as_coarse(key, verdict["config"]):
                return f"misses {self.study.quality_level}{_seen(verdict['metrics'])}"
        if any(trial.status is TrialStatus.INFEASIBLE for trial in own):
            return f"misses {self.study.quality_level} or a limit"
        return None

    def _is_as_coarse(self, key: Config, judged: Mapping[str, Setting]) -> bool:
        """A variant that misses the level with the default's settings misses it with any."""
        default = self.space.quality_key(self.space.default(key.engine)).as_dict()
        return dict(judged) in (key.as_dict(), default)

    @property
    def best(self) -> Config | None:
        """What was published; of a search that has not ended, the best that is not known to be infeasible."""
        answer = self.study.result.get("best")
        if isinstance(answer, dict):
            return Config.of(answer["engine"], answer["variant"], answer["config"])
        return next((e.config for e in self.ledger.ranked() if self.against(e.config) is None), None)


def recorded(store: Store, study: StudyRecord) -> Recorded:
    """Read a study with all of its trials and short rounds.

    Raises NotFoundError where its machine or model is not stored, UsageError where an engine of it is not
    registered here.
    """
    machine = Machine.from_json(store.machine(study.fingerprint).document)
    model = store.model(study.model_digest).info
    trials = store.trials(study.id)
    parts = []
    for name in study.engines:
        engine = engines.get(name)
        seen = [trial.config for trial in trials if trial.config.engine == name]
        described = (
            *engine.dimensions(machine, model, study.workload),
            *placement.dimensions(engine, machine),
        )
        labels = dict.fromkeys(config.variant for config in seen)
        variants = tuple(sorted(labels, key=lambda label: _place(label, engine.variant_labels)))
        # A setting that came with a later version of the engine was not in these configurations.
        dimensions = tuple(d for d in (_as_seen(d, seen) for d in described) if d.values)
        parts.append(EngineSpace(engine, variants, dimensions))
    space = Space(machine, model, study.workload, tuple(parts))
    ledger = Ledger(space, study.objectives[0])
    rounds = _short_rounds(store, study)
    for trial in trials:
        if trial.measurement_key and not trial.status.failed and trial.invalidated_at is None:
            ledger.add(trial.config, rounds.pop(trial.measurement_key, ()))
    return Recorded(study, space, ledger, trials)


def _short_rounds(store: Store, study: StudyRecord) -> dict[str, tuple[RoundSamples, ...]]:
    """Those under the answer's conditions; the quiet ones where load came with the confirmation only."""
    loaded = store.short_rounds(study.id, "loaded") if study.result.get("conditions") == "loaded" else {}
    return loaded or store.short_rounds(study.id, "quiet")


def _seen(metrics: Mapping[str, float]) -> str:
    names = (("kl_divergence", "KL"), ("top1_agreement", "top-1"))
    known = [f"{label} {METRICS[name].format(metrics[name])}" for name, label in names if name in metrics]
    return f": {', '.join(known)}" if known else ""


def _as_seen(dimension: Dimension, configs: Sequence[Config]) -> Dimension:
    """The dimension with the values that were tried, in the engine's order."""
    seen: dict[Setting, None] = dict.fromkeys(
        value for config in configs if (value := config.get(dimension.name)) is not None
    )
    return replace(dimension, values=tuple(sorted(seen, key=lambda value: _place(value, dimension.values))))


def _place(value: Setting, order: Sequence[Setting]) -> tuple[int, float, str]:
    """Where a value stands; those that the engine does not name come last, numbers by size."""
    if value in order:
        return order.index(value), 0.0, ""
    return len(order), float(value) if isinstance(value, (int, float)) else 0.0, str(value)
