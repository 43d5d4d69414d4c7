"""cputune against the field: the same file and budget for everyone, all winners measured in one run."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.machine import probe
from profiles.store import Store
from profiles.vocabulary import QUALITY_LEVELS, WORKLOADS, Config, Role
from tests.benchmarks.commands import cputune
from tests.benchmarks.peers import llama_bench, optimus, rules
from tests.benchmarks.peers.build import Peers, PeersError
from tests.benchmarks.peers.contestant import Contestant, Deadline
from tests.benchmarks.peers.neutral import Referee, Values, interleave, ratio, value_of
from tuner.engines.base import SOURCE
from tuner.errors import ModelFileError, WorkerError
from tuner.events import Event, ignore
from tuner.home import Home
from tuner.models.source import DEMO
from tuner.request import SearchRequest
from tuner.search.load import LoadAwareRunner
from tuner.search.objectives import measured_value, objective_of
from tuner.search.space import Space
from tuner.setup import build_space, open_workshop
from tuner.workshop import Workshop

LLAMA_CPP = "llama_cpp"
LEVEL = QUALITY_LEVELS["near-lossless"]
WORKLOAD = WORKLOADS["chat"]
SAME_FILE, NEAR_LOSSLESS = 0.98, 1.1
OWN, OWN_FREE = "cputune, the file as it is", "cputune, near-lossless variants"
DEFAULT = "default"


@dataclass(frozen=True)
class Report:
    """All that the neutral run is about: contestants, near-lossless variants as they come, both referees."""

    contestants: tuple[Contestant, ...]
    variants: tuple[Contestant, ...]
    session: Values
    bench: Values
    head: tuple[str, ...]

    def chosen(self, name: str) -> Config | None:
        """What a contestant chose."""
        return next((one.chosen for one in self.contestants if one.name == name), None)

    @property
    def peers(self) -> tuple[Contestant, ...]:
        """Those that cputune is compared with on the same file."""
        return tuple(one for one in self.contestants if one.name not in (OWN, OWN_FREE))


def peers(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """Everyone's advice, the neutral run, the verdicts; the first row holds Markdown for docs/proof.md."""
    home = Home(folder / "home")
    request = SearchRequest(DEMO, WORKLOAD, LEVEL, engines=(options.engine,))
    with (
        Store.open(home.database) as store,
        closing(open_workshop(request, probe(), store, home, ignore)) as shop,
    ):
        report = compete(folder, options, shop, build_space(request, shop))
    return rows_of(report, f"make bench ARGS='peers --budget {options.budget} --passes {options.passes}'")


def compete(folder: Path, options: Namespace, shop: Workshop, space: Space) -> Report:
    """Let everyone choose, one after the other, then measure all choices in turn."""
    default = space.default(options.engine)
    contestants = [Contestant(DEFAULT, default, "nothing set"), *others(folder, options, shop, space)]
    for name, restriction in ((OWN, ["--variants", SOURCE]), (OWN_FREE, [])):
        note(f"{name}: {options.budget} s")
        own = folder / f"own-{len(contestants)}"
        contestants.append(own_search(own, name, options.engine, options.budget, restriction))
    note("making and judging the variants, in nobody's time")
    variants = near_lossless(shop, space, default)
    configs = [one.chosen for one in (*contestants, *variants) if one.chosen is not None]
    with shop.bench(seed=options.seed) as bench:
        runner = LoadAwareRunner(bench, observer=say)

        def response_ms(config: Config) -> float:
            try:
                rounds = runner.measure(config, rounds=1, kind="full", fresh=True).rounds
                return measured_value(objective_of(WORKLOAD), WORKLOAD, rounds)
            except WorkerError as failure:
                raise PeersError(failure.reason) from failure

        session = interleave(Referee("session loop", response_ms), configs, options.passes, note)
        conditions = runner.conditions
    head = (
        f"{shop.machine.model_name}, {shop.machine.effective.cpu_count} CPUs; {shop.model.name};"
        f" {WORKLOAD.prompt_tokens} prompt and {WORKLOAD.output_tokens} output tokens;"
        f" {options.budget} s each; {options.passes} passes, {conditions}.",
        f"Builds: {options.engine} {shop.build(options.engine)}; {_peer_build(options.engine)}.",
    )
    return Report(tuple(contestants), variants, session, second_referee(options, shop, configs), head)


def others(folder: Path, options: Namespace, shop: Workshop, space: Space) -> list[Contestant]:
    """llama-optimus under two of its metrics, llama-bench's grid, the articles' rules."""
    default = space.default(options.engine)
    model = shop.path(default)
    found = []
    cpus, cores = shop.machine.effective.cpu_count, shop.machine.physical_cores
    try:
        peers_here = built_for(options.engine)
    except PeersError as error:
        names = (*map(optimus.name_of, ("tg", "mean")), llama_bench.NAME)
        found += [Contestant.skipped(name, error) for name in names]
    else:
        for metric in ("tg", "mean"):
            note(f"{optimus.name_of(metric)}: {options.budget} s")
            found.append(optimus.search(peers_here, model, default, WORKLOAD, metric, options.budget, folder))
        note(f"{llama_bench.NAME}: {options.budget} s")
        dimensions = space.part(options.engine).by_name
        threads = [value for value in dimensions["n_threads"].values if isinstance(value, int)]
        ubatches = [value for value in dimensions["n_ubatch"].values if isinstance(value, int)]
        axes = llama_bench.axes(WORKLOAD.prompt_tokens, threads, ubatches)
        cells = expand(shop, space, default, axes)
        found.append(llama_bench.search(peers_here, model, cells, WORKLOAD, options.budget))
    note(f"{rules.NAME}: {options.budget} s")
    cells = expand(shop, space, default, rules.axes(min(cores or cpus, cpus)))
    deadline = Deadline.of(options.budget)
    with bounded(shop, deadline), shop.bench(seed=options.seed) as bench:
        found.append(rules.search(LoadAwareRunner(bench, observer=say), cells, WORKLOAD, deadline))
    return [canonical(space, one) for one in found]


def built_for(engine: str) -> Peers:
    """The peers, which run llama.cpp; raises PeersError where that is not what is compared."""
    if engine != LLAMA_CPP:
        raise PeersError(f"it runs {LLAMA_CPP}, not {engine}")
    return Peers.find()


@contextmanager
def bounded(shop: Workshop, deadline: Deadline) -> Iterator[None]:
    """Benches that are made within end with the deadline, so that no round outlasts it."""
    before, shop.remaining_s = shop.remaining_s, lambda: deadline.left_s
    try:
        yield
    finally:
        shop.remaining_s = before


def expand(
    shop: Workshop, space: Space, default: Config, axes: Sequence[Sequence[Mapping[str, Any]]]
) -> list[Config]:
    """A grid's cells around the default, coarse first, canonical, without those that can't run.

    More threads than CPUs can run.
    """
    engine = shop.engine(default.engine)
    within = {d.name: 1 for d in space.part(engine.name).dimensions if d.role is Role.THREADS}
    found: dict[str, Config] = {}
    for cell in llama_bench.coarse_first(axes):
        known = {name: value for name, value in cell.items() if default.get(name) is not None}
        config = space.canonical(default.with_settings(**known))
        runnable = config.with_settings(**within)
        if engine.violation(runnable, space.machine, space.model, space.workload) is None:
            found.setdefault(config.key, config)
    return list(found.values())


def canonical(space: Space, one: Contestant) -> Contestant:
    """The contestant with its choice in the one form of all that behave alike."""
    if one.chosen is None:
        return one
    return Contestant(one.name, space.canonical(one.chosen), one.effort, one.seconds)


def own_search(folder: Path, name: str, engine: str, budget_s: int, restriction: Sequence[str]) -> Contestant:
    """A search as a user runs it, with an empty store, making variants and judging them within its budget."""
    folder.mkdir(parents=True, exist_ok=True)
    question = ("--model", DEMO, "--workload", WORKLOAD.name, "--engines", engine, *restriction)
    ran = cputune(folder, "search", *question, "--budget", f"{budget_s}s", "--fresh", "--json")
    try:
        document = ran.document
    except RuntimeError as error:
        return Contestant.skipped(name, error)
    best = document["best"]
    trials = sum(document["trials"].values())
    effort = f"{trials} trials, {document['status']}"
    return Contestant(name, Config.of(best["engine"], best["variant"], best["config"]), effort, ran.seconds)


def near_lossless(shop: Workshop, space: Space, default: Config) -> tuple[Contestant, ...]:
    """Every variant that keeps near-lossless, at the engine's default settings; the file as given is one."""
    engine = default.engine
    found: dict[str, Contestant] = {}
    for recipe in shop.engine(engine).recipes(shop.model):
        config = space.canonical(Config(engine, recipe.label, default.settings))
        try:
            kept = recipe.is_source or shop.quality(space.quality_key(config)).meets(LEVEL)
            digest = shop.variant(engine, recipe.label).digest
        except (WorkerError, ModelFileError) as error:
            note(f"{recipe.label} is left out: {error}")
            continue
        if kept:
            # Variants of the same tensors are one.
            found.setdefault(digest, Contestant(f"{recipe.label} at the defaults", config, "near-lossless"))
    return tuple(found.values())


def second_referee(options: Namespace, shop: Workshop, configs: Sequence[Config]) -> Values:
    """llama-bench over the same configurations; nothing where it is not built."""
    try:
        program = built_for(options.engine).program("llama-bench")
    except PeersError as error:
        note(f"second referee skipped: {error}")
        return {}
    referee = Referee(
        "llama-bench",
        lambda config: llama_bench.measure(program, shop.path(config), config, WORKLOAD).response_ms,
    )
    return interleave(referee, configs, options.passes, note)


# --- verdicts ------------------------------------------------------------------------------------


def rows_of(report: Report, command: str) -> list[dict[str, Any]]:
    """The table, and a verdict on each of the limits."""
    rows: list[dict[str, Any]] = [
        {"what": "against the field", "command": command, "markdown": table(report, command)}
    ]
    own, free = report.chosen(OWN), report.chosen(OWN_FREE)
    best = free or own
    for what, faster, against, limit, must in (
        ("cputune on the same file against each peer", own, report.peers, SAME_FILE, True),
        (
            "best profile against each near-lossless variant at the defaults",
            best,
            report.variants,
            NEAR_LOSSLESS,
            True,
        ),
        (
            "best profile against each peer's winner on the file as it is",
            best,
            report.peers,
            NEAR_LOSSLESS,
            False,
        ),
    ):
        least = smallest(report.session, against, faster)
        if least is None:
            rows.append({"what": what, "command": command, "skipped": "nothing to compare"})
            continue
        name, times = least
        row: dict[str, Any] = {"what": what, "command": command, "smallest ratio": times, "to": name}
        row["limit"] = f"ratio >= {limit:g}" + ("" if must else " (the other reading of it; no must)")
        rows.append(row | ({"kept": times >= limit} if must else {"reached": times >= limit}))
    return rows


def smallest(
    values: Values, against: Sequence[Contestant], faster: Config | None
) -> tuple[str, float] | None:
    """The one that comes nearest, with how many times the fastest's time it takes."""
    if faster is None:
        return None
    found = [
        (one.name, interval.estimate)
        for one in against
        if one.chosen is not None and (interval := ratio(values, one.chosen, faster)) is not None
    ]
    return min(found, key=lambda pair: pair[1], default=None)


# --- the table -----------------------------------------------------------------------------------

COLUMNS = (
    "who",
    "effort",
    "settings",
    "response ms",
    "x of cputune's, same file (95 %)",
    "llama-bench ms",
    "x (95 %)",
)


def table(report: Report, command: str) -> str:
    """The comparison in Markdown: command, machine, builds, a row for each contestant and variant."""
    own = report.chosen(OWN)
    default = report.chosen(DEFAULT)
    lines = [
        f"    {command}\n",
        *report.head,
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for one in (*report.contestants, *report.variants):
        if one.chosen is None:
            cells = [one.name, one.effort, *("-" for _ in COLUMNS[2:])]
        else:
            effort = f"{one.effort}; {one.seconds:.0f} s" if one.seconds else one.effort
            cells = [one.name, effort, difference(one.chosen, default)]
            for values in (report.session, report.bench):
                cells += [in_ms(value_of(values, one.chosen)), times(values, one.chosen, own)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def difference(config: Config, default: Config | None) -> str:
    """A configuration as what differs from the default."""
    settings = config.as_dict()
    given = default.as_dict() if default is not None else {}
    changed = [f"{name}={value}" for name, value in settings.items() if given.get(name) != value]
    return " ".join(([config.variant] if config.variant != SOURCE else []) + changed) or "as they are"


def in_ms(value: float | None) -> str:
    """Milliseconds, or a dash."""
    return "-" if value is None else f"{value:.0f}"


def times(values: Values, config: Config, own: Config | None) -> str:
    """A ratio with its interval, or a dash."""
    found = ratio(values, config, own) if own is not None else None
    return "-" if found is None else f"{found.estimate:.2f} ({found.low:.2f} to {found.high:.2f})"


def _peer_build(engine: str) -> str:
    try:
        found = built_for(engine)
        found.program("llama-bench")
    except PeersError as error:
        return f"no llama-bench ({error})"
    return f"llama-bench of llama-cpp-python {found.version}, built by make peers"


def note(text: str) -> None:
    """Progress, apart from the result."""
    sys.stderr.write(f"{text}\n")


def say(event: Event) -> None:
    """An event as progress."""
    if event.message:
        note(event.message)
