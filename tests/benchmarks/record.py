"""Records a landscape of this machine: `python -m tests.benchmarks.record --workload chat --out FILE`.

For one stream TTFT depends on the prefill parts of a configuration only, and inter-token latency on its
decode parts only. So measuring every part of both measures the full grid: any configuration's response is
TTFT + (n - 1) x ITL of its parts. That is a sum where the grid is a product. The claim is checked: at the
end some configurations run the whole workload, and the file keeps what was predicted and what was measured.

Rounds come in passes over all parts, so that drift spreads evenly; each pass orders the parts by what is
expensive to switch, every other one backwards. A run that is interrupted or out of budget keeps what it has
and the next one goes on. Restrict a large space by --variants and --values, and say so where you cite it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from probes.machine import probe
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, Config, Quality
from tests.benchmarks.landscape import Landscape
from tuner.engines.base import Phase, Scope
from tuner.errors import CputuneError, ModelFileError, WorkerError
from tuner.events import Event
from tuner.home import Home
from tuner.measurement.lock import measuring_lock
from tuner.request import SearchRequest, parse_budget_s, workload_named
from tuner.search.ports import Runner
from tuner.search.space import Space
from tuner.setup import build_space, open_workshop

QUALITY_SHARE = 0.4
CHECKS_SHARE = 0.05
CHECK_ROUNDS = 3
SAVE_EVERY_S = 30.0
CACHED_S = 0.2
"""A quality known sooner came from the store, and says nothing of what judging takes."""


@dataclass
class Recorder:
    """Measures what a landscape lacks until it has `rounds` rounds of all, or `left_s` says no more."""

    land: Landscape
    runner: Runner
    rounds: int
    left_s: Callable[[], float]
    save: Callable[[], None]
    tell: Callable[[str], None]
    disturbed: int = 0

    def passes(self, kept_s: float) -> bool:
        """Record passes while more than `kept_s` are left; whether everything has its rounds."""
        steps = self._ordered()
        lost: set[Config] = set()
        for number in range(1, self.rounds + 1):
            for phase, config in steps if number % 2 else reversed(steps):
                part = self.land.space.phase_part(config, phase)
                if part in lost or len(self.land.samples_ms[phase].get(part, ())) >= number:
                    continue
                if self.left_s() <= kept_s:
                    return False
                self._record(phase, config, part, lost)
            self.tell(f"pass {number} of {self.rounds} is complete")
        return True

    def _record(self, phase: Phase, config: Config, part: Config, lost: set[Config]) -> None:
        try:
            measured = self.runner.measure(config, rounds=1, phases=frozenset({phase}))
        except (WorkerError, ModelFileError) as failure:
            lost.add(part)
            self.tell(f"{config.variant} {config.as_dict()}: {failure}")
            return
        self.disturbed += sum(samples.dropped is not None for samples in measured.rounds)
        clean = [samples for samples in measured.rounds if samples.dropped is None]
        for samples in clean:
            gaps = [gap for stream in samples.gaps_ms for gap in stream]
            value = median(samples.ttft_ms) if phase is Phase.PREFILL else median(gaps)
            self.land.add(config, phase, [value], [time.time()])
        self.land.add_overhead(
            config, measured.switched, max(measured.seconds - measured.generation_seconds, 0.0)
        )
        self.save()

    def _ordered(self) -> list[tuple[Phase, Config]]:
        """Every part, the expensive settings changing last; a context's decode parts after its prefills."""
        space = self.land.space
        steps = [(phase, config) for phase, configs in self.land.wanted().items() for config in configs]

        def order(step: tuple[Phase, Config]) -> tuple[str, ...]:
            phase, config = step
            dimensions = space.part(config.engine).dimensions
            heavy = {scope: [d.name for d in dimensions if d.scope <= scope] for scope in Scope}
            return (
                config.engine,
                config.variant,
                str(config.without(heavy[Scope.LOAD]).settings),
                str(config.without(heavy[Scope.CONTEXT]).settings),
                str(config.without(heavy[Scope.RUN]).settings),
                "0" if phase is Phase.PREFILL else "1",
                str(config.settings),
            )

        return sorted(steps, key=order)

    def checks(self, count: int, seed: int) -> None:
        """Run `count` random configurations whole, beside what their parts predict."""
        space = self.land.space
        rng = random.Random(seed)
        n = space.workload.output_tokens
        known = self.land.samples_ms
        for config in (space.draw(rng) for _ in range(count)):
            if config is None or self.left_s() <= 0:
                continue
            parts = [known[phase].get(space.phase_part(config, phase)) for phase in Phase]
            if parts[0] and parts[1]:
                predicted_ms = median(parts[0]) + (n - 1) * median(parts[1])
                try:
                    measured = self.runner.measure(config, rounds=CHECK_ROUNDS, kind="full")
                except WorkerError as failure:
                    self.tell(f"a check was lost: {failure.reason}")
                    continue
                whole = [r.response_ms[0] for r in measured.rounds if r.dropped is None]
                if whole:
                    self.land.checks.append({"predicted_ms": predicted_ms, "measured_ms": median(whole)})
        if self.land.checks:
            errors = sorted(abs(c["predicted_ms"] / c["measured_ms"] - 1) for c in self.land.checks)
            self.tell(
                f"{len(errors)} whole configurations: predicted within {100 * median(errors):.1f} % (median),"
                f" {100 * errors[-1]:.1f} % (worst)"
            )

    def qualities(self, measure: Callable[[Config], Quality], kept_s: float = 0.0) -> None:
        """Judge every variant, and the KV types of those that are near-lossless without them.

        None is begun when less than `kept_s` are left; what is missing waits for the next run.
        """
        space = self.land.space
        keys = dict.fromkeys(space.quality_key(c) for c in self.land.wanted()[Phase.DECODE])
        spent = []
        for key in sorted(keys, key=lambda k: not self._is_plain(k)):
            plain = self.land.quality.get(self._plain(key))
            ruined = plain is None or not plain.meets(QUALITY_LEVELS["near-lossless"])
            if key in self.land.quality or (ruined and not self._is_plain(key)) or self.left_s() <= kept_s:
                continue
            began = time.monotonic()
            try:
                self.land.quality[key] = measure(key)
            except CputuneError as failure:
                self.tell(f"the quality of {key.variant} could not be measured: {failure}")
                self.land.quality[key] = None
            seconds = time.monotonic() - began
            if seconds > CACHED_S:
                spent.append(seconds)
            self.save()
        if spent:
            # The first also made the reference.
            self.land.quality_s = median(spent)
            self.land.reference_s = max(spent[0] - self.land.quality_s, 0.0)

    def _plain(self, key: Config) -> Config:
        default = self.land.space.quality_key(self.land.space.default(key.engine))
        return Config(key.engine, key.variant, default.settings)

    def _is_plain(self, key: Config) -> bool:
        return key == self._plain(key)


def narrowed(space: Space, values: Mapping[str, Sequence[str]]) -> Space:
    """The space with some settings held to a few of their values, named as text.

    SystemExit for an unknown setting, and where the default would be left out: every strategy begins there
    and changes it.
    """
    parts = []
    known = {d.name for part in space.engines for d in part.dimensions}
    unknown = sorted(set(values) - known)
    if unknown:
        raise SystemExit(f"--values {unknown[0]}: allowed are {', '.join(sorted(known))}")
    for part in space.engines:
        dimensions = tuple(
            replace(d, values=tuple(v for v in d.values if _text(v) in values[d.name]))
            if d.name in values
            else d
            for d in part.dimensions
        )
        empty = [d.name for d in dimensions if not d.values]
        if empty:
            raise SystemExit(f"--values {empty[0]}: none of its values is left")
        default = space.default(part.engine.name)
        for d in dimensions:
            value = default.get(d.name)
            if d.name in values and value is not None and value not in d.values:
                raise SystemExit(f"--values {d.name}: must hold {_text(value)}, the default's")
        parts.append(replace(part, dimensions=dimensions))
    return replace(space, engines=tuple(parts))


def continued(path: Path, space: Space, builds: Mapping[str, str]) -> Landscape:
    """The file's landscape where there is one of this very space and these builds, else a new one."""
    if not path.exists():
        return Landscape(space, builds)
    land = Landscape.load(path)
    if land.space.digest != space.digest or dict(land.builds) != dict(builds):
        raise SystemExit(f"{path} holds another space or build: name another file")
    return land


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.record", description=__doc__)
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--model")
    parser.add_argument("--engines", help="comma-separated")
    parser.add_argument("--variants", help="comma-separated")
    parser.add_argument("--values", action="append", default=[], metavar="NAME=A,B")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--checks", type=int, default=20, help="whole configurations to measure")
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    budget_s = parse_budget_s(asked.budget)
    ends = time.monotonic() + budget_s
    request = SearchRequest(
        asked.model,
        workload_named(asked.workload),
        QUALITY_LEVELS["near-lossless"],
        engines=_listed(asked.engines),
        variants=_listed(asked.variants),
    )
    values = {name: text.split(",") for name, _, text in (pair.partition("=") for pair in asked.values)}
    home = Home.find()

    def tell(text: str) -> None:
        sys.stderr.write(f"{max(ends - time.monotonic(), 0):6.0f} s left: {text}\n")

    def observe(event: Event) -> None:
        if event.message:
            tell(event.message)

    with (
        Store.open(home.database) as store,
        closing(open_workshop(request, probe(), store, home, observe)) as shop,
        measuring_lock(home.lock, wait=False),
        shop.bench(seed=asked.seed) as bench,
    ):
        space = narrowed(build_space(request, shop), values)
        land = continued(asked.out, space, {name: shop.build(name) for name in shop.available})
        saved_s = [time.monotonic()]

        def save_now_and_then() -> None:
            if time.monotonic() - saved_s[0] > SAVE_EVERY_S:
                land.save(asked.out)
                saved_s[0] = time.monotonic()

        recorder = Recorder(
            land, bench, asked.rounds, lambda: ends - time.monotonic(), save_now_and_then, tell
        )
        tell(", ".join(f"{len(configs)} {phase} parts" for phase, configs in land.wanted().items()))
        try:
            measure = shop.quality_measure()
            if measure is not None:
                recorder.qualities(measure, kept_s=(1 - QUALITY_SHARE) * budget_s)
            recorder.passes(kept_s=CHECKS_SHARE * budget_s)
            recorder.checks(asked.checks, asked.seed)
        finally:
            land.save(asked.out)
    counts = [len(rounds) for table in land.samples_ms.values() for rounds in table.values()]
    fewest = min(counts, default=0)
    tell(
        f"{asked.out}: {len(counts)} parts, {fewest} rounds or more each, {recorder.disturbed} disturbed ones"
        " were dropped; run again to go on"
    )


def _listed(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split(",")) if text else None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
