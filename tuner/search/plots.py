"""The charts of a study, as Plotly figures from what the store has of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from math import ceil
from statistics import median
from typing import Any, TypeVar

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from profiles.metrics import METRICS, base_name, flat_name
from profiles.records import TrialRecord
from profiles.vocabulary import Config, Objective, Role, Setting, TrialStatus
from tuner.engines.base import Phase
from tuner.search.both import front_of
from tuner.search.explain import importance
from tuner.search.recorded import Recorded
from tuner.search.space import VARIANT

Figures = dict[str, go.Figure]
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2", "#9d755d", "#72b7b2", "#eeca3b")
"""Readable on white and on black; a variant keeps its colour on the whole page."""
BEST = "#d62728"
COLUMNS = 3
HEIGHT = 430
"""Of a chart, in pixels."""
_STATUS_MARKS = {
    TrialStatus.COMPLETE: "circle",
    TrialStatus.PRUNED: "circle-open",
    TrialStatus.INFEASIBLE: "x",
}


def figures(found: Recorded, best: Config | None) -> Figures:
    """Every chart that the study has something for, by the name of its place on the page."""
    charts = _Charts(found, best)
    makers: Mapping[str, Callable[[], go.Figure | None]] = {
        "history": charts.history,
        "front": charts.front,
        "quality": charts.quality,
        "importance": charts.importance,
        "slices": charts.slices,
        "threads": charts.threads,
        "variants": charts.variants,
    }
    made = {name: make() for name, make in makers.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def axis(name: str) -> str:
    """A metric's name with its unit, as an axis is called."""
    unit = METRICS[base_name(name)].unit
    return f"{name} ({unit})" if unit else name


class _Charts:
    def __init__(self, found: Recorded, best: Config | None) -> None:
        self._found, self._best = found, best
        self._objective = found.study.objectives[0]
        variants = (Config(p.engine.name, label) for p in found.space.engines for label in p.variants)
        labels = dict.fromkeys(map(self._label, variants))
        self._colours = {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(labels)}
        values = ((replace(trial, status=found.status(trial)), found.values(trial)) for trial in found.trials)
        self._measured = [(trial, value[0]) for trial, value in values if value is not None]

    def _label(self, config: Config) -> str:
        """The variant; among several engines, which may call other files by one name, with its engine."""
        several = len(self._found.space.engines) > 1
        return f"{config.engine} {config.variant}" if several else config.variant

    def history(self) -> go.Figure | None:
        """Every trial in its order, the best so far, and the trials that were lost."""
        if not self._measured:
            return None
        figure = go.Figure()
        for status, mark in _STATUS_MARKS.items():
            chosen = [(trial, value) for trial, value in self._measured if trial.status is status]
            if chosen:
                figure.add_scatter(
                    x=[trial.number for trial, _ in chosen],
                    y=[value for _, value in chosen],
                    mode="markers",
                    name=str(status),
                    marker={"symbol": mark, "size": 8, "color": COLOURS[0]},
                    hovertext=[self._hover(trial) for trial, _ in chosen],
                )
        figure.add_scatter(
            x=[trial.number for trial, _ in self._measured],
            y=list(self._best_so_far()),
            mode="lines",
            name="best so far",
            line={"shape": "hv", "color": BEST},
        )
        lost = [trial for trial in self._found.trials if trial.status.failed]
        if lost:
            worst = max(value for _, value in self._measured)
            figure.add_scatter(
                x=[trial.number for trial in lost],
                y=[worst] * len(lost),
                mode="markers",
                name="lost",
                marker={"symbol": "cross-thin", "size": 9, "line": {"width": 2, "color": COLOURS[3]}},
                hovertext=[self._hover(trial) for trial in lost],
            )
        return _titled(figure, "Optimisation history", "trial", axis(self._objective.metric))

    def _best_so_far(self) -> Iterator[float]:
        better = min if self._objective.direction == "minimize" else max
        best: float | None = None
        for trial, value in self._measured:
            if trial.status is not TrialStatus.INFEASIBLE:
                best = value if best is None else better(best, value)
            yield best if best is not None else value

    def front(self) -> go.Figure | None:
        """The first objective against the second, or against memory where there is one only."""
        other = next((o.metric for o in self._found.study.objectives[1:]), "peak_rss_mib")
        points = [
            (trial, value, second)
            for trial, value in self._measured
            if (second := self._metric(trial, other)) is not None
        ]
        return self._front(points, other) if points else None

    def quality(self) -> go.Figure | None:
        """The first objective against what the answers lose, where at least two losses were measured."""
        points = [
            (trial, value, judged["kl_divergence"])
            for trial, value in self._measured
            if (judged := self._judged(trial.config)) is not None
        ]
        return self._front(points, "kl_divergence") if len({loss for *_, loss in points}) > 1 else None

    def _front(self, points: Sequence[tuple[TrialRecord, float, float]], other: str) -> go.Figure:
        """Trials with their objective and a second metric; those that nothing betters in both joined."""
        figure = go.Figure()
        for label, chosen in _grouped(points, lambda point: self._label(point[0].config)):
            figure.add_scatter(
                x=[second for _, _, second in chosen],
                y=[value for _, value, _ in chosen],
                mode="markers",
                name=escape(label),
                marker={
                    "color": self._colours[label],
                    "size": 8,
                    "symbol": [_STATUS_MARKS[trial.status] for trial, _, _ in chosen],
                },
                hovertext=[self._hover(trial) for trial, _, _ in chosen],
            )
        feasible = [p for p in points if p[0].status is not TrialStatus.INFEASIBLE]
        vectors = [(value, second) for _, value, second in feasible]
        both = self._objective, Objective(other, METRICS[base_name(other)].direction)
        standing = [vectors[place] for place in front_of(vectors, both)]
        figure.add_scatter(
            x=[second for _, second in standing],
            y=[value for value, _ in standing],
            mode="lines+markers",
            name="Pareto front",
            line={"color": BEST, "dash": "dot"},
            marker={"size": 12, "symbol": "circle-open", "line": {"width": 2}},
        )
        return _titled(
            figure,
            f"Pareto front of {self._objective.metric} and {other}",
            axis(other),
            axis(self._objective.metric),
        )

    def importance(self) -> go.Figure | None:
        """Each setting's share of what the settings explain."""
        if self._best is None:
            return None
        shares = importance(self._found.space, self._found.ledger, self._objective, self._best)
        if not shares:
            return None
        ranked = sorted(shares.items(), key=lambda pair: pair[1])
        figure = go.Figure(
            go.Bar(
                x=[100 * share for _, share in ranked],
                y=[escape(name) for name, _ in ranked],
                orientation="h",
                marker={"color": COLOURS[0]},
                texttemplate="%{x:.0f} %",
                textposition="outside",
                cliponaxis=False,
            )
        )
        figure.update_layout(height=170 + 28 * len(ranked))
        figure.update_yaxes(title_standoff=16)
        return _titled(figure, "Importance of the settings", "share of what they explain (%)", "setting")

    def slices(self) -> go.Figure | None:
        """A small chart for each setting that was varied: the objective by its value."""
        settings = dict(self._varied())
        if not settings or not self._measured:
            return None
        rows = ceil(len(settings) / COLUMNS)
        figure = make_subplots(
            rows,
            COLUMNS,
            subplot_titles=[escape(name) for name in settings],
            shared_yaxes=True,
            horizontal_spacing=0.03,
            vertical_spacing=0.28 / rows,
        )
        shown: set[str] = set()
        for place, (name, values) in enumerate(settings.items()):
            cell = {"row": place // COLUMNS + 1, "col": place % COLUMNS + 1}
            order = [_word(value) for value in values]
            for label, chosen in _grouped(self._measured, lambda point: self._label(point[0].config)):
                known = [(t, v) for t, v in chosen if _value(t.config, name) is not None]
                figure.add_scatter(
                    x=[_word(_value(trial.config, name)) for trial, _ in known],
                    y=[value for _, value in known],
                    mode="markers",
                    name=escape(label),
                    legendgroup=label,
                    showlegend=label not in shown,
                    marker={"color": self._colours[label], "size": 7, "opacity": 0.75},
                    hovertext=[self._hover(trial) for trial, _ in known],
                    **cell,
                )
                shown.add(label)
            figure.update_xaxes(type="category", categoryorder="array", categoryarray=order, **cell)
            if place % COLUMNS == 0:
                figure.update_yaxes(title_text=axis(self._objective.metric), **cell)
        figure.update_layout(height=120 + 230 * rows)
        return _titled(figure, "Each setting by itself, with whatever else was set", None, None)

    def _varied(self) -> Iterator[tuple[str, Sequence[Setting]]]:
        found: dict[str, list[Setting]] = {
            VARIANT: list(
                dict.fromkeys(label for part in self._found.space.engines for label in part.variants)
            )
        }
        for part in self._found.space.engines:
            for dimension in part.dimensions:
                seen = found.setdefault(dimension.name, [])
                seen += [value for value in dimension.values if value not in seen]
        yield from ((name, values) for name, values in found.items() if len(values) > 1)

    def threads(self) -> go.Figure | None:
        """The fastest of each phase by its number of threads, a line for each variant."""
        figure = make_subplots(1, 2, subplot_titles=[_speed_title(phase) for phase in Phase])
        lines = 0
        for column, phase in enumerate(Phase, start=1):
            names = {
                (part.engine.name, d.name)
                for part in self._found.space.engines
                for d in part.dimensions
                if d.role is Role.THREADS and phase in d.phases
            }
            fastest: dict[str, dict[int, float]] = {}
            for config, values in self._found.ledger.samples_ms(phase).items():
                for name, count in config.settings:
                    if (config.engine, name) in names and isinstance(count, int) and values:
                        by_count = fastest.setdefault(self._label(config), {})
                        by_count[count] = max(self._speed(phase, median(values)), by_count.get(count, 0.0))
            for label, by_count in fastest.items():
                if len(by_count) > 1:
                    lines += 1
                    counts = sorted(by_count)
                    figure.add_scatter(
                        x=counts,
                        y=[by_count[count] for count in counts],
                        mode="lines+markers",
                        name=escape(label),
                        legendgroup=label,
                        showlegend=column == 1 or not any(t.legendgroup == label for t in figure.data),
                        line={"color": self._colours[label]},
                        row=1,
                        col=column,
                    )
            figure.update_xaxes(title_text="threads", dtick=1 if self._few_cpus else None, row=1, col=column)
            figure.update_yaxes(title_text="tokens/s", rangemode="tozero", row=1, col=column)
        return (
            _titled(figure, "Thread scaling: the fastest seen with so many threads", None, None)
            if lines
            else None
        )

    def variants(self) -> go.Figure | None:
        """The fastest prefill and decode of each variant."""
        figure = make_subplots(1, 2, subplot_titles=[_speed_title(phase) for phase in Phase])
        bars = 0
        for column, phase in enumerate(Phase, start=1):
            fastest: dict[str, float] = {}
            for config, values in self._found.ledger.samples_ms(phase).items():
                if values:
                    label, speed = self._label(config), self._speed(phase, median(values))
                    fastest[label] = max(speed, fastest.get(label, 0.0))
            labels = [label for label in self._colours if label in fastest]
            bars += len(labels)
            figure.add_bar(
                x=[escape(label) for label in labels],
                y=[fastest[label] for label in labels],
                marker={"color": [self._colours[label] for label in labels]},
                texttemplate="%{y:.0f}",
                textposition="outside",
                cliponaxis=False,
                showlegend=False,
                row=1,
                col=column,
            )
            figure.update_xaxes(title_text="variant", type="category", row=1, col=column)
            figure.update_yaxes(title_text="tokens/s", rangemode="tozero", row=1, col=column)
        return (
            _titled(figure, "Prefill and decode of each variant: the fastest seen", None, None)
            if bars
            else None
        )

    @property
    def _few_cpus(self) -> bool:
        return self._found.space.machine.effective.cpu_count <= 16

    def _speed(self, phase: Phase, ms: float) -> float:
        """Tokens per second of all streams."""
        workload = self._found.space.workload
        tokens = workload.prompt_tokens if phase is Phase.PREFILL else 1
        return 1000.0 * tokens * workload.streams / ms

    def _metric(self, trial: TrialRecord, name: str) -> float | None:
        values = self._found.values(trial)
        if values is not None and len(values) > 1:
            return values[1]
        return trial.metrics.get(flat_name(name))

    def _hover(self, trial: TrialRecord) -> str:
        settings = "<br>".join(f"{name}={_word(value)}" for name, value in trial.config.settings)
        lines = [f"trial {trial.number}: {trial.status}", escape(self._label(trial.config)), settings]
        return "<br>".join(filter(None, (*lines, self._quality(trial.config), escape(trial.reason or ""))))

    def _quality(self, config: Config) -> str:
        """What its answers are worth beside the reference's; empty where that was not measured."""
        metrics = self._judged(config)
        if metrics is None:
            return ""
        return (
            f"KL {METRICS['kl_divergence'].format(metrics['kl_divergence'])},"
            f" top-1 {METRICS['top1_agreement'].format(metrics['top1_agreement'])}"
        )

    def _judged(self, config: Config) -> Mapping[str, float] | None:
        key = self._found.space.quality_key(config)
        judged = self._found.study.result.get("judged")
        for verdict in judged if isinstance(judged, list) else ():
            metrics: Mapping[str, float] = verdict["metrics"]
            same = (verdict["engine"], verdict["variant"], verdict["config"])
            if same == (key.engine, key.variant, key.as_dict()) and "kl_divergence" in metrics:
                return metrics
        return None


def _speed_title(phase: Phase) -> str:
    return f"{phase} (tokens/s)"


def _value(config: Config, name: str) -> Setting | None:
    return config.variant if name == VARIANT else config.get(name)


def _word(value: Setting | None) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else escape(str(value))


T = TypeVar("T")


def _grouped(points: Iterable[T], key: Callable[[T], str]) -> Iterator[tuple[str, list[T]]]:
    found: dict[str, list[T]] = {}
    for point in points:
        found.setdefault(key(point), []).append(point)
    yield from found.items()


def _titled(figure: go.Figure, title: str, x: str | None, y: str | None) -> go.Figure:
    # Without a height of its own a chart would take that of its place, which has none before it is drawn.
    height = figure.layout.height or HEIGHT
    figure.update_layout(title={"text": title}, height=height, margin={"l": 70, "r": 30, "t": 90, "b": 60})
    if x is not None:
        figure.update_xaxes(title_text=x)
    if y is not None:
        figure.update_yaxes(title_text=y)
    return figure


def plain(made: Figures) -> dict[str, Any]:
    """The figures as plain values, without Plotly's default template, which is for white pages."""
    return {name: figure.update_layout(template="none").to_plotly_json() for name, figure in made.items()}
