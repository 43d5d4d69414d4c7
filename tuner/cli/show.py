"""`cputune show`: a study or a published profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from profiles.records import ProfileRecord, StudyRecord, TrialRecord
    from profiles.store import Store


def show(
    wanted: Annotated[str, typer.Argument(metavar="STUDY|PROFILE", help="An id, or its beginning.")],
    trials: Annotated[bool, typer.Option("--trials", help="List the study's trials.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show a study or a profile, and how its trials ended."""
    from profiles.store import Store
    from tuner.cli import output
    from tuner.home import Home

    with Store.open(Home.find().database) as store:
        profile = store.profile(wanted) if wanted.startswith("p-") else None
        study = store.study(profile.study_id if profile and profile.study_id else wanted)
        listed = store.trials(study.id) if trials else ()
        document = _document(store, study, profile, listed)
    if as_json:
        output.print_json(document)
    else:
        _print(document)


def _document(
    store: Store, study: StudyRecord, profile: ProfileRecord | None, trials: tuple[TrialRecord, ...]
) -> dict[str, Any]:
    answer = profile.facts.get("document") if profile else study.result
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
    if trials:
        document["trials"] = [_trial(trial) for trial in trials]
    return document


def _trial(trial: TrialRecord) -> dict[str, Any]:
    return {
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
    from tuner.cli.render import search_report

    counts = ", ".join(f"{count} {status}" for status, count in document["trial_counts"].items())
    output.show(
        Text(f"study {document['study']} ({document['name']}): {document['status']}, {counts or 'no'} trials")
    )
    if document.get("profile", {}).get("invalidated"):
        output.show(Text(f"This profile can't be trusted: it {document['profile']['invalidated']}"))
    if document["answer"]:
        search_report(document["answer"])
    if "trials" in document:
        output.show(trials_table(document["trials"]))


def trials_table(trials: list[dict[str, Any]]) -> object:
    """The trials, with those settings only that vary among them."""
    from tuner.cli.output import table
    from tuner.cli.progress import short

    names = sorted({name for trial in trials for name in trial["config"]})
    varying = [name for name in names if len({str(trial["config"].get(name)) for trial in trials}) > 1]
    rows = (
        (
            str(trial["number"]),
            trial["status"],
            "-" if trial["value"] is None else f"{trial['value']:.1f}",
            trial["variant"],
            *(short(trial["config"].get(name, "-")) for name in varying),
            trial["reason"] or "",
        )
        for trial in trials
    )
    return table(None, (">#", "status", ">value", "variant", *varying, "reason"), rows)
