"""`cputune invalidate`: a measurement that is known to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import AsJson, Storage

if TYPE_CHECKING:
    from profiles.records import TrialRecord
    from profiles.store import Store


def invalidate(
    trial: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL", help="STUDY/NUMBER with the number that `show --trials` lists, or a trial's id."
        ),
    ],
    reason: Annotated[str, typer.Option(help="What was wrong with it.")] = "declared wrong by the user",
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Declare a measurement wrong.

    It stays in the history, but its samples are not used any more. Profiles that rest on it say so and are
    no longer answers: the next search measures anew.
    """
    from tuner.cli.output import print_json, say
    from tuner.home import Home
    from tuner.opening import known_store

    why = " ".join(reason.split())
    with known_store(Home.find(), storage) as store:
        wrong = store.invalidate_trial(named_trial(store, trial).id, why)
        study = store.study(wrong.study_id)
        doubted = [
            profile.id
            for profile in store.profiles(model_digest=study.model_digest)
            if profile.invalidated is not None and f"trial {wrong.id}," in profile.invalidated
        ]
    if as_json:
        print_json(
            {"trial": wrong.id, "study": study.id, "number": wrong.number, "reason": why, "profiles": doubted}
        )
        return
    rest = f"Not answers any more: {', '.join(doubted)}." if doubted else "No published profile rests on it."
    say(
        (
            f"Trial {wrong.number} of {study.id} ({study.name}) is declared wrong: {why}.",
            f"{rest} The next search measures it anew.",
        )
    )


def named_trial(store: Store, text: str) -> TrialRecord:
    """The trial that STUDY/NUMBER or an id names.

    Raises UsageError for another form, NotFoundError for one that is not there.
    """
    from profiles.errors import NotFoundError
    from tuner.errors import UsageError

    study_name, slash, number = text.rpartition("/")
    if not (number.isascii() and number.isdecimal()) or (slash and not study_name):
        raise UsageError(
            f"'{text}' names no trial: write STUDY/NUMBER, such as s-7f3a2c/12, or a trial's id;"
            " cputune show STUDY --trials lists them"
        )
    if not slash:
        return store.trial(int(number))
    study = store.study(study_name)
    trials = store.trials(study.id)
    found = next((trial for trial in trials if trial.number == int(number)), None)
    if found is None:
        listed = f"its trials are 0 to {trials[-1].number}" if trials else "it has no trials"
        raise NotFoundError(f"study {study.id} has no trial {number}: {listed}")
    return found
