"""`cputune show`: a study or a published profile, and why it won."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import AsJson, Storage

if TYPE_CHECKING:
    from profiles.records import ProfileRecord, StudyRecord, TrialRecord
    from profiles.store import Store
    from tuner.search.recorded import Recorded


def show(
    wanted: Annotated[
        str,
        typer.Argument(metavar="STUDY|PROFILE|COMPARISON", help="An id, or the beginning of one."),
    ],
    trials: Annotated[bool, typer.Option("--trials", help="List the study's trials.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Show a study, a profile or a comparison in full, and why it won.

    What each setting is worth around the best, which settings matter, what would help next, and which
    trials were lost.
    """
    from tuner.cli import output
    from tuner.cli.compared import shown
    from tuner.compared import comparison, comparison_number
    from tuner.history import study_named
    from tuner.home import Home
    from tuner.opening import known_store

    number = comparison_number(wanted)
    with known_store(Home.find(), storage) as store:
        if number is not None:
            compared = comparison(store, number)
            if as_json:
                output.print_json(compared)
            else:
                output.say(shown(compared))
            return
        profile = store.profile(wanted) if wanted.startswith("p-") else None
        study = study_named(store, wanted)
        document = _document(store, study, profile, with_trials=trials)
    if as_json:
        output.print_json(document)
    else:
        _print(document)


def _document(
    store: Store, study: StudyRecord, profile: ProfileRecord | None, *, with_trials: bool
) -> dict[str, Any]:
    from tuner.why import explanation

    answer: Any = profile.facts.get("document") if profile else study.result
    found, note = _recorded(store, study)
    document: dict[str, Any] = {
        "study": study.id,
        "name": study.name,
        "status": str(study.status),
        "created_at": study.created_at.isoformat(timespec="seconds"),
        "updated_at": study.updated_at.isoformat(timespec="seconds"),
        "sampler": study.sampler,
        "seed": study.seed,
        "engine_builds": dict(study.engine_builds),
        "trial_counts": {str(k): v for k, v in store.trial_counts([study.id])[study.id].items()},
        "answer": answer or None,
        "invalidated": [
            f"{published.id} {published.invalidated}"
            for published in store.profiles(study_id=study.id)
            if published.invalidated is not None
        ],
        "explanation": found and explanation(found, profile.config if profile else found.best, answer or {}),
        "note": note,
    }
    if profile is not None:
        document["profile"] = {
            "id": profile.id,
            "status": str(profile.status),
            "conditions": profile.conditions,
            "created_at": profile.created_at.isoformat(timespec="seconds"),
            "invalidated": profile.invalidated,
        }
        if document["answer"]:
            best = {**document["answer"]["best"], "profile_id": profile.id}
            document["answer"] = {**document["answer"], "best": best}
    if with_trials:
        trials = found.trials if found else store.trials(study.id)
        document["trials"] = [_trial(trial) for trial in trials]
    return document


def _recorded(store: Store, study: StudyRecord) -> tuple[Recorded | None, str | None]:
    """What the study measured; None, with a note, where an engine of it is not known here."""
    from tuner.errors import UsageError
    from tuner.search.recorded import recorded

    try:
        return recorded(store, study), None
    except UsageError as error:
        return None, f"it can't be explained here: {error}"


def _trial(trial: TrialRecord) -> dict[str, Any]:
    return {
        "id": trial.id,
        "number": trial.number,
        "status": str(trial.status),
        "reason": trial.reason,
        "engine": trial.config.engine,
        "variant": trial.config.variant,
        "config": trial.config.as_dict(),
        "value": trial.objective_value,
        "metrics": dict(trial.metrics),
    }


def _print(document: dict[str, Any]) -> None:
    from rich.text import Text

    from tuner.cli import output
    from tuner.cli.explained import explanation_report
    from tuner.cli.render import search_report
    from tuner.cli.resources import resources_report

    counts = ", ".join(f"{count} {status}" for status, count in document["trial_counts"].items())
    output.show(
        Text(f"study {document['study']} ({document['name']}): {document['status']}, {counts or 'no'} trials")
    )
    for line in document["invalidated"]:
        output.show(Text(f"Not to be trusted: {line}"))
    if document["answer"]:
        search_report(document["answer"])
        resources_report(document["answer"])
    if document["explanation"]:
        explanation_report(document["explanation"])
    elif document["note"]:
        output.show(Text(f"\n{document['note'].capitalize()}"))
    if "trials" in document:
        typer.echo("\nTrials")
        for line in trial_lines(document["trials"], output.terminal_width()):
            typer.echo(line)


def trial_lines(trials: list[dict[str, Any]], width: int | None) -> Iterator[str]:
    """The trials, with those settings only that differ from the first trial's, which is the default."""
    from tuner.cli.output import listing

    first = trials[0]["config"]
    # With several engines a variant's name alone says little.
    names = ("engine", "variant") if len({trial["engine"] for trial in trials}) > 1 else ("variant",)
    rows = (
        (
            str(trial["number"]),
            trial["status"],
            "-" if trial["value"] is None else f"{trial['value']:.1f}",
            *(trial[name] for name in names),
            _differing(trial["config"], first) + (f": {trial['reason']}" if trial["reason"] else ""),
        )
        for trial in trials
    )
    return listing((">#", "status", ">value", *names, "differs from trial 0 in"), rows, width)


def _differing(settings: dict[str, Any], first: dict[str, Any]) -> str:
    from tuner.cli.render import settings_line

    return settings_line(settings, first, "-")
