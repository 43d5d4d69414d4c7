"""Every command that reads the store, on one of 200 studies and 100,000 trials."""

from __future__ import annotations

import json
import sqlite3
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from profiles.records import Measurement
from profiles.store import Store, owner_token
from profiles.vocabulary import TrialStatus
from tests.benchmarks.commands import cputune
from tuner.search.recorded import recorded
from tuner.why import explanation

LIMIT_S = 0.5
MODELS = 10
Row = dict[str, Any]


def large_store(folder: Path, options: Namespace) -> list[dict[str, Any]]:
    """Search once with the simulated engine, multiply that in the store, call each command a few times."""
    searched = cputune(
        folder, "search", "--engines", "simulated", "--trials", "12", "--budget", "20s", "--json"
    ).document
    database = folder / "home" / "cputune.sqlite3"
    multiply(database, options.studies, options.trials)
    model, profile = searched["model"]["name"], searched["best"]["profile_id"]
    export = str(folder / "x.jsonl")
    # What has no limit reads the whole database, or all samples of a study.
    calls: tuple[tuple[tuple[str, ...], float | None], ...] = (
        (("history",), LIMIT_S),
        (("history", "--limit", str(options.studies), "--json"), LIMIT_S),
        (("history", "--model", "model-3", "--workload", "chat"), LIMIT_S),
        (("history", "--diff", "s-000007", "s-000017"), LIMIT_S),
        (("show", "s-000007"), LIMIT_S),
        (("show", "s-000007", "--trials"), LIMIT_S),
        (("show", profile), LIMIT_S),
        (("models", "list"), LIMIT_S),
        (("invalidate", "s-000007/499"), LIMIT_S),
        (("recommend", "--model", model, "--engines", "simulated"), LIMIT_S),
        (("db", "export", "s-000007", "--out", export), None),
        (("db", "check"), None),
    )
    rows = [_timed(folder, arguments, limit_s, options.repeats) for arguments, limit_s in calls]
    return [*rows, _data_of_a_plot(database, "s-000007", options.repeats), _writes(database, "s-000008")]


def _data_of_a_plot(database: Path, study: str, repeats: int) -> dict[str, Any]:
    """What `plot` reads and works out, without starting Python and drawing by plotly."""
    seconds = []
    for _ in range(repeats):
        began = time.monotonic()
        with Store.open(database) as store:
            found = recorded(store, store.study(study))
            explanation(found, found.best, found.study.result)
        seconds.append(time.monotonic() - began)
    return {
        "what": "data of plot",
        "command": f"tuner.search.recorded of {study}",
        "seconds": median(seconds),
        "slowest_s": max(seconds),
        "limit": f"median < {LIMIT_S:g} s",
        "kept": median(seconds) < LIMIT_S,
    }


def _writes(database: Path, study: str, count: int = 100) -> dict[str, Any]:
    """What keeping one more trial with its rounds costs in a full store, and how large that is."""
    with Store.open(database) as store:
        trial = next(one for one in store.trials(study, limit=20) if one.measurement_key)
        known = store.study(study)
        rounds = store.trial_rounds(trial.id)
        began = time.monotonic()
        for _ in range(count):
            started = store.start_trial(study, trial.config, owner_token())
            key = Measurement(known.fingerprint, "bench", "0" * 64, trial.config, known.workload)
            store.finish_trial(
                started.id, TrialStatus.COMPLETE, objective_value=1.0, metrics=trial.metrics,
                measurement=key, rounds=rounds,
            )  # fmt: skip
        seconds = (time.monotonic() - began) / count
        trials = sum(
            sum(counts.values()) for counts in store.trial_counts([s.id for s in store.studies()]).values()
        )
    return {
        "what": "one more trial",
        "command": f"{count} trials of {len(rounds)} rounds, started and ended",
        "seconds": seconds,
        "store_mib": database.stat().st_size / 2**20,
        "kib_per_trial": database.stat().st_size / 2**10 / trials,
    }


def _timed(folder: Path, arguments: tuple[str, ...], limit_s: float | None, repeats: int) -> dict[str, Any]:
    ran = []
    for _ in range(repeats + 1):
        (folder / "x.jsonl").unlink(missing_ok=True)
        ran.append(cputune(folder, *arguments))
    # The first call fills the file system's cache and is not counted.
    seconds = [one.seconds for one in ran[1:]]
    row: dict[str, Any] = {
        "what": " ".join(arguments[: 2 if arguments[0] in ("db", "models") else 1]),
        "command": ran[0].command.replace(str(folder), "FOLDER"),
        "seconds": median(seconds),
        "slowest_s": max(seconds),
    }
    failed = [one.stderr.strip() for one in ran if one.code != 0]
    if failed:
        row["fault"] = failed[0]
    if limit_s is not None:
        row |= {"limit": f"median < {limit_s:g} s", "kept": median(seconds) < limit_s and not failed}
    return row


def multiply(path: Path, studies: int, trials: int) -> None:
    """Copy the one study of a database until it has so many studies and trials, each with its rounds."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA synchronous = OFF")
        store = _Copies(connection)
        for number in range(1, MODELS):
            store.copy_model(number)
        for number in range(1, studies):
            store.copy_study(number)
        store.fill(trials // studies)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("ANALYZE")


class _Copies:
    """Copies of the rows of the one study that was searched."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        (self._model,) = self._rows("cputune_model")
        (self._study,) = self._rows("cputune_study")
        (self._profile,) = self._rows("cputune_profile")
        self._links = self._rows("cputune_profile_trial")
        self._trials = [row for row in self._rows("cputune_trial") if row["measurement_key"]]
        self._measurements = {row["key"]: row for row in self._rows("cputune_measurement")}
        self._rounds: dict[str, list[Row]] = {}
        for row in self._rows("cputune_round"):
            self._rounds.setdefault(row["measurement_key"], []).append(row)

    def copy_model(self, number: int) -> None:
        """Another model of equal shape."""
        name = {"digest": f"{number:064x}", "name": f"model-{number}"}
        info = json.dumps(json.loads(self._model["info"]) | name)
        self._insert("cputune_model", [self._model | name | {"info": info}])

    def copy_study(self, number: int) -> None:
        """Another study with its profile, of one of the models, a day earlier than the one before."""
        study_id, profile_id = f"s-{number:06x}", f"p-{number:06x}"
        digest = self._model["digest"] if number % MODELS == 0 else f"{number % MODELS:064x}"
        result = json.loads(self._study["result"])
        result["best"]["profile_id"] = profile_id
        builds = {
            name: f"{build} {number % 3}" for name, build in json.loads(self._study["engine_builds"]).items()
        }
        moments = {
            name: (datetime.fromisoformat(self._study[name]) - timedelta(days=number)).isoformat()
            for name in ("created_at", "updated_at")
        }
        self._insert(
            "cputune_study",
            [
                self._study
                | moments
                | {"id": study_id, "key": study_id, "storage_name": study_id, "model_digest": digest}
                | {"result": json.dumps(result), "engine_builds": json.dumps(builds)}
            ],
        )
        self._insert(
            "cputune_profile",
            [
                self._profile
                | {"id": profile_id, "lineage": study_id, "study_id": study_id, "model_digest": digest}
                | {"comparison_id": None, "created_at": moments["updated_at"]}
            ],
        )
        self._insert("cputune_profile_trial", [link | {"profile_id": profile_id} for link in self._links])

    def fill(self, each: int) -> None:
        """Bring every study to so many trials, each with a measurement and its rounds."""
        studies = [row["id"] for row in self._rows("cputune_study")]
        first = max(row["id"] for row in self._trials) + 1
        made = [
            (study, number, template, first + place * each + number)
            for place, study in enumerate(studies)
            for number, template in enumerate(islice(cycle(self._trials), each))
            if study != self._study["id"] or number >= len(self._trials) + 50
        ]
        keys = {trial_id: f"{trial_id:032x}" for *_, trial_id in made}
        self._insert(
            "cputune_measurement",
            (self._measurements[t["measurement_key"]] | {"key": keys[trial_id]} for *_, t, trial_id in made),
        )
        self._insert(
            "cputune_trial",
            (
                template
                | {"id": trial_id, "study_id": study, "number": number, "measurement_key": keys[trial_id]}
                for study, number, template, trial_id in made
            ),
        )
        self._insert(
            "cputune_round",
            (
                row | {"id": None, "measurement_key": keys[trial_id], "trial_id": trial_id}
                for *_, template, trial_id in made
                for row in self._rounds.get(template["measurement_key"], ())
            ),
        )

    def _rows(self, table: str) -> list[Row]:
        return [dict(row) for row in self._connection.execute(f"SELECT * FROM {table}")]

    def _insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        waiting: Iterator[Mapping[str, Any]] = iter(rows)
        first = next(waiting, None)
        if first is None:
            return
        names = ", ".join(first)
        marks = ", ".join(f":{name}" for name in first)
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        self._connection.execute(statement, dict(first))
        self._connection.executemany(statement, (dict(row) for row in waiting))
