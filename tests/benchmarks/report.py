"""Compares strategies on landscapes: `python -m tests.benchmarks.report FILE... --seeds 200 --out FILE`.

Regret is how much slower the advised configuration is than the best feasible one, by the medians of the
even rounds, which no strategy sees. Cost is seconds on the replayed clock as a share of the grid's: every
canonical configuration once, one short round of both phases, switching as little as possible. The area under
the regret curve is the mean regret over the time up to the horizon. Every strategy begins with the default,
and advises nothing else before it has measured something better.

The drift of the machine while a file was recorded is taken out (`tests/benchmarks/steady.py`);
`drifting:FILE` leaves it in. `made-up:NAME` in place of a file is one of `MADE_UP`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from probes.errors import CputuneError
from tests.benchmarks import synthetic
from tests.benchmarks.grid_cost import grid_cost_s
from tests.benchmarks.landscape import Landscape
from tests.benchmarks.remembered import RememberedSpace
from tests.benchmarks.replay import Truth
from tests.benchmarks.steady import steady
from tests.benchmarks.strategies import STRATEGIES

HORIZON = 0.1
"""Of the grid's cost: where issue 5 asks."""
SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
CURVE = np.linspace(0.0, 1.0, 101)
"""Shares of the horizon."""
MADE_UP: Mapping[str, Callable[[], Landscape]] = {
    "simulated-2": partial(synthetic.simulated, 2),
    "simulated-8": partial(synthetic.simulated, 8),
    "additive-2": partial(synthetic.additive, 2, seed=1),
    "additive-2b": partial(synthetic.additive, 2, seed=5),
    "additive-8": partial(synthetic.additive, 8, seed=2),
    "additive-32": partial(synthetic.additive, 32, seed=3),
    "engines-2": partial(synthetic.engines, 2, seed=1),
}
MUST = {"median": 0.02, "p95": 0.05}


@lru_cache(maxsize=1)
def opened(name: str) -> tuple[Landscape, Truth, float]:
    """A landscape, its truth, and what its grid costs in seconds."""
    land = landscape(name)
    land.space = RememberedSpace.of(land.space)
    truth = Truth(land)
    return land, truth, grid_cost_s(land, truth)


def landscape(name: str) -> Landscape:
    """A made-up landscape, or a file's with or without its drift."""
    kind, _, rest = name.partition(":")
    if kind == "made-up":
        return MADE_UP[rest]()
    return Landscape.load(Path(rest)) if kind == "drifting" else steady(Landscape.load(Path(name)))


def regrets(name: str, strategy: str, horizon: float, seed: int) -> list[float]:
    """One run's regret along `CURVE`."""
    land, truth, grid_s = opened(name)
    seconds = horizon * grid_s
    try:
        trace = STRATEGIES[strategy](land, seconds, seed)
    except CputuneError as failure:
        # It comes from another process, and errors with fields of their own don't.
        raise RuntimeError(f"{name}: {strategy} with seed {seed}: {failure}") from None
    known = {config: truth.regret(config) for _, config in trace.points}
    return [known[trace.at(share * seconds)] for share in CURVE]


def summary(curves: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Medians and 95th percentiles at `SHARES`, and the area with a bootstrap interval over seeds."""
    at = {share: curves[:, int(np.argmin(np.abs(CURVE - share)))] for share in SHARES}
    areas = curves.mean(axis=1)
    return {
        "seeds": len(curves),
        "regret": {
            str(share): {"median": float(np.median(r)), "p95": float(np.quantile(r, 0.95))}
            for share, r in at.items()
        },
        "area": float(areas.mean()),
        "area_95": _interval(areas, seed),
        "curve_median": [round(float(value), 5) for value in np.median(curves, axis=0)],
    }


def _interval(areas: np.ndarray, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    means = areas[rng.integers(0, len(areas), (2000, len(areas)))].mean(axis=1)
    return [float(value) for value in np.quantile(means, (0.025, 0.975))]


def compare(name: str, strategies: Sequence[str], seeds: int, *, horizon: float, jobs: int) -> dict[str, Any]:
    """All strategies on one landscape."""
    land, truth, grid_s = opened(name)
    knowable = Truth(land, half=1).best
    found: dict[str, Any] = {
        "landscape": name,
        "configurations": land.space.combinations,
        "parts": {phase.value: len(table) for phase, table in land.samples_ms.items()},
        "rounds": min(len(rounds) for table in land.samples_ms.values() for rounds in table.values()),
        "sums_off": [abs(check["predicted_ms"] / check["measured_ms"] - 1) for check in land.checks],
        "grid_s": grid_s,
        "horizon": horizon,
        "default_regret": truth.regret(land.space.default(land.space.engines[0].engine.name)),
        "noise_floor": truth.regret(knowable),
        "strategies": {},
    }
    with ProcessPoolExecutor(jobs) as pool:
        for strategy in strategies:
            curves = list(pool.map(partial(regrets, name, strategy, horizon), range(seeds)))
            found["strategies"][strategy] = summary(np.array(curves))
    return found


def table(found: Mapping[str, Any]) -> str:
    """A comparison as Markdown."""
    shares = "".join(f" {share * found['horizon']:.2%} |" for share in SHARES)
    lines = [
        f"{found['landscape']}: {found['parts']['prefill']} prefill and {found['parts']['decode']} decode"
        f" parts of {found['rounds']} rounds or more, grid {found['grid_s']:.0f} s,"
        f" default {100 * found['default_regret']:.0f} % slower than the best,"
        f" noise floor {100 * found['noise_floor']:.1f} %{_sums(found['sums_off'])}",
        "",
        f"| median / p95 regret in % at this share of the grid's cost |{shares} area (95 %) |",
        "|---|" + "---|" * (len(SHARES) + 1),
    ]
    for strategy, result in found["strategies"].items():
        cells = "".join(
            f" {100 * at['median']:.1f} / {100 * at['p95']:.1f} |" for at in result["regret"].values()
        )
        low, high = (100 * value for value in result["area_95"])
        lines.append(f"| {strategy} |{cells} {100 * result['area']:.1f} ({low:.1f} to {high:.1f}) |")
    return "\n".join(lines) + "\n"


def _sums(errors: Sequence[float]) -> str:
    """How far whole configurations are from what their parts predict."""
    if not errors:
        return ""
    return (
        f", parts predict {len(errors)} whole configurations within {100 * float(np.median(errors)):.1f} %"
        f" (median), {100 * max(errors):.1f} % (worst)"
    )


def verdict(found: Mapping[str, Any]) -> str:
    """Whether cputune's search keeps what issue 5 asks at the horizon, alone and beside plain TPE and random:
    no more regret at the end, by median and 95th percentile, and a smaller area."""
    ours = found["strategies"]["cputune"]
    at = ours["regret"]["1.0"]
    kept = all(at[name] <= limit for name, limit in MUST.items())
    lines = [f"regret {'kept' if kept else 'NOT KEPT'} at {found['horizon']:.1%} of the grid's cost"]
    for name in ("tpe", "random"):
        if name in found["strategies"]:
            other = found["strategies"][name]
            larger = {part: at[part] > other["regret"]["1.0"][part] for part in MUST}
            ahead = ours["area_95"][1] < other["area_95"][0]
            there = ", ".join(f"{part} {'LARGER' if larger[part] else 'no larger'}" for part in MUST)
            lines.append(f"against {name} {there} there, area {'smaller' if ahead else 'NOT smaller'} (95 %)")
    return "; ".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.report", description=__doc__)
    parser.add_argument("landscapes", nargs="+")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--horizon", type=float, default=HORIZON, help="share of the grid's cost")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    found = []
    for name in asked.landscapes:
        result = compare(
            name, asked.strategies.split(","), asked.seeds, horizon=asked.horizon, jobs=asked.jobs
        )
        sys.stdout.write(table(result) + "\n")
        if "cputune" in result["strategies"]:
            sys.stdout.write(verdict(result) + "\n")
        sys.stdout.flush()
        found.append(result)
    if asked.out:
        asked.out.write_text(json.dumps({"schema_version": 1, "found": found}) + "\n")


if __name__ == "__main__":
    main()
