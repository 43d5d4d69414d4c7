"""`cputune recommend`: the nearest that is known, without measuring."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson, Storage

if TYPE_CHECKING:
    from profiles.store import Store
    from tuner.export import Launch
    from tuner.home import Home
    from tuner.recommend import Question, Recommendation


def recommend(
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A registered name, a .gguf file, or another source.")
    ] = None,
    workload: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="chat, rag, writer, long, batch, or a YAML file.")
    ] = "chat",
    quality: Annotated[str, typer.Option(help="near-lossless, balanced or any.")] = "near-lossless",
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Another machine: what `cputune probe --json` printed there, or a folder with its recorded"
            " /proc and /sys [default: this machine].",
        ),
    ] = None,
    engines: Annotated[
        str | None, typer.Option(help="Engines to choose from, separated by commas [default: all].")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--format", "-f", metavar="FORMAT", help="Print it as `export` does.")
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Recommend a configuration from what is known, without measuring.

    The answer says what it rests on: exactly this question, this machine's answer to another one, that of a
    similar machine, or an engine's own defaults; and every difference from what was asked. No engine needs to
    be installed.
    """
    from probes.machine import probe
    from tuner.cli.output import print_json, say
    from tuner.cli.search import split_names
    from tuner.errors import UsageError
    from tuner.export import FORMATS, export
    from tuner.home import Home
    from tuner.narrowing import check_names
    from tuner.opening import known_store
    from tuner.recommend import Question
    from tuner.recommend import recommend as advise
    from tuner.request import quality_named
    from tuner.userfiles import machine_given, workload_given

    if target is not None:
        check_names("format", (target,), tuple(FORMATS))
        if as_json:
            raise UsageError(f"--format {target} and --json ask for two answers: give one of them")
    home = Home.find()
    asked = probe() if machine is None else machine_given(machine)
    with known_store(home, storage) as store:
        question = Question(
            known_model(store, home, model),
            workload_given(workload),
            quality_named(quality),
            engines=split_names("--engines", engines),
        )
        given = advise(store, asked, question)
        launch = None if target is None else launch_of(given, store, home, is_here=machine is None)
    if launch is not None and target is not None:
        typer.echo(export(launch, target).rstrip("\n"))
    elif as_json:
        print_json(given.to_json())
    else:
        say(lines(given, question, is_here=machine is None))


def known_model(store: Store, home: Home, wanted: str | None) -> str:
    """The digest of a registered model, whose file need not be there; else of a source, registered now."""
    from profiles.errors import NotFoundError
    from tuner.models.source import DEMO

    if wanted is None:
        records = store.models()
        own = [record for record in records if record.source != DEMO] or list(records)
        if len(own) == 1:
            return own[0].info.digest
    else:
        try:
            return store.model(wanted).info.digest
        except NotFoundError:
            # A source, or a name that is told with its nearest.
            pass
    from tuner.setup import choose_model

    return choose_model(store, home, wanted)[1].digest


def launch_of(given: Recommendation, store: Store, home: Home, *, is_here: bool) -> Launch:
    """What `--format` prints; where the variant's file can't be named, its name stands for it."""
    from probes.errors import CputuneError
    from tuner.cli.progress import Progress
    from tuner.engines.base import SOURCE
    from tuner.export import Launch
    from tuner.handout import path_of

    workload, label = given.question.workload, given.config.variant
    remarks = [f"cputune recommend: {basis_in_words(given)}", *given.reasons, *given.changes]
    name = given.model.name
    path = f"{name}.gguf" if label == SOURCE else f"{name}-{label}.gguf"
    made = (
        ""
        if label == SOURCE
        else f"; cputune models prepare {quote(name)} --variants {label} makes that file"
    )
    hint = f"put your file's path in the place of {path}{made}"
    if is_here:
        try:
            with Progress() as progress:
                path = str(path_of(given.config, name, workload, store, home, progress.observe))
        except CputuneError as error:
            remarks.append(f"{hint}: here it could not be made ({error})")
    else:
        remarks.append(hint)
    return Launch.of(given.config, path, workload, given.machine, tuple(remarks))


def basis_in_words(given: Recommendation) -> str:
    """What a recommendation rests on, in a few words."""
    where = "this machine" if given.profile is None else given.measured_on
    words = {
        "exact": "an answer to exactly this question",
        "same_machine": "this machine's answer to another question",
        "similar": f"the answer of a similar machine, {where}",
        "default": "no measurement: an engine's own defaults",
    }[given.basis]
    distance = f"distance {given.distance:.2f}, " if given.distance else ""
    return f"{words} ({distance}confidence: {given.confidence})"


def lines(given: Recommendation, question: Question, *, is_here: bool) -> Iterator[str]:
    """The recommendation on a page of text."""
    from tuner.recommend import label_of
    from tuner.request import SearchRequest

    asked = f"{given.model.name}, {question.workload.name} on {label_of(given.machine)}"
    yield f"{asked}: {basis_in_words(given)}"
    yield from (f"  {reason}" for reason in given.reasons)
    bits = f" ({given.bits_per_weight:.2f} bits per weight)" if given.bits_per_weight else ""
    yield f"{given.config.engine}, variant {given.config.variant}{bits}:"
    words = {True: "on", False: "off"}
    shown = ((n, words[v] if isinstance(v, bool) else v) for n, v in given.config.settings)
    yield "  " + " ".join(f"{name}={value}" for name, value in shown)
    if given.changes:
        yield f"Brought over: {'; '.join(given.changes)}"
    if given.profile is not None and given.profile.speedup is not None and given.profile.speedup.low > 1:
        gain = given.profile.speedup
        where = given.measured_on if given.basis == "similar" else "this machine"
        yield f"Measured on {where}: {gain.estimate:.2f}x the default ({gain.low:.2f} to {gain.high:.2f})."
    if given.basis != "exact":
        where = "" if is_here else " on that machine"
        again = SearchRequest(given.model.name, question.workload, question.quality, limits=question.limits)
        yield f"To measure it{where}: {' '.join(('cputune search', *again.options()))}"
