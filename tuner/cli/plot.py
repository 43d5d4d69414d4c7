"""`cputune plot`: the charts of a study as one HTML page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson, Storage

if TYPE_CHECKING:
    from profiles.store import Store
    from tuner.search.recorded import Recorded


def plot(
    wanted: Annotated[str, typer.Argument(metavar="STUDY|PROFILE", help="An id, or its beginning.")],
    out: Annotated[str, typer.Option("--out", metavar="FILE.html", help="Where to write the page.")],
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Write the charts of a study as one HTML page that needs no network.

    Optimisation history, Pareto fronts with memory and with quality, importance, each setting by itself,
    thread scaling, and prefill and decode of each variant. An earlier page of the same name is overwritten,
    another file is not.
    """
    from tuner.cli import output
    from tuner.errors import NothingFeasibleError, UsageError
    from tuner.history import study_named
    from tuner.home import Home
    from tuner.opening import known_store
    from tuner.search.recorded import recorded

    target = writable(out)
    with known_store(Home.find(), storage) as store:
        profile = store.profile(wanted) if wanted.startswith("p-") else None
        found = recorded(store, study_named(store, wanted))
        facts = header(store, found)
    try:
        from tuner.search.page import page
        from tuner.search.plots import figures, plain
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "plotly":
            raise
        raise UsageError("plots need plotly, which is not installed: pip install 'cputune[plot]'") from error
    made = figures(found, profile.config if profile else found.best)
    if not made:
        raise NothingFeasibleError(
            f"study {found.study.id} has nothing to plot: none of its {len(found.trials)} trials was"
            f" measured; see cputune show --trials {found.study.id}"
        )
    replace_text(target, page(f"cputune: {found.study.name}", facts, plain(made)))
    if as_json:
        output.print_json({"study": found.study.id, "file": str(target), "charts": list(made)})
    else:
        output.show(f"wrote {target}: {', '.join(made)}")


def header(store: Store, found: Recorded) -> dict[str, str]:
    """What the page is about."""
    study, machine = found.study, found.space.machine
    workload, model = study.workload, store.model(study.model_digest).name
    builds = ", ".join(f"{name} {build}" for name, build in study.engine_builds.items())
    return {
        "model": f"{model} ({found.space.model.bits_per_weight:.1f} bits/weight)",
        "machine": f"{machine.model_name or machine.arch}, {machine.effective.cpu_count} CPUs",
        "workload": f"{workload.name}: {workload.prompt_tokens} prompt + {workload.output_tokens} output"
        f" tokens, {workload.streams} at a time",
        "objective": ", ".join(objective.metric for objective in study.objectives),
        "quality": study.quality_level,
        "engine": builds,
        "study": f"{study.id}, {study.status}, {len(found.trials)} trials,"
        f" {study.updated_at.isoformat(timespec='minutes')}",
    }


def writable(out: str) -> Path:
    """The file to write; UsageError for a folder, for a missing folder, and for a file that is no page of
    ours."""
    from tuner.errors import UsageError
    from tuner.search.page import GENERATOR

    target = Path(out).expanduser()
    if target.is_dir():
        raise UsageError(f"--out {out} is a folder: name a file in it, such as {target / 'study.html'}")
    if not target.parent.is_dir():
        raise UsageError(f"--out {out}: there is no folder {target.parent}; make it first")
    if not os.access(target.parent, os.W_OK):
        raise UsageError(f"--out {out}: you may not write into {target.parent.absolute()}")
    if target.exists():
        if not target.is_file():
            raise UsageError(f"--out {out} is no regular file: choose another name")
        with target.open("rb") as file:
            if GENERATOR.encode() not in file.read(1000):
                raise UsageError(f"--out {out} exists and is no page of cputune's: choose another name")
    return target


def replace_text(target: Path, text: str) -> None:
    """Write a file as a whole: whoever reads it sees the old one or the new one."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
