"""Checks of a store beyond the database itself: Optuna's index, and the files that it speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from profiles.store import Store
from profiles.store.database import Database
from profiles.store.place import parse_url
from profiles.store.soundness import Finding, examine, named
from tuner import engines
from tuner.home import Home
from tuner.models.variants import VariantCache
from tuner.search.indexed import behind

_NEWEST = 200
"""So many published profiles are looked at."""


def check(home: Home, place: str | Path) -> Iterator[Finding]:
    """Every check of a store, the database first; what follows from a damaged or old one is left out.

    Raises NotFoundError where there is no database, SchemaTooNewError, and StoreError for one that can't be
    read at all.
    """
    database = Database(parse_url(place))
    try:
        found = []
        for finding in examine(database):
            found.append(finding)
            yield finding
        if any(one.state == "damaged" or (one.check, one.state) == ("schema", "note") for one in found):
            return
        with database.looking() as connection:
            yield _index(behind(connection))
    finally:
        database.close()
    with Store.open(place) as store:
        yield from _sources(store)
        yield from _variants(store, home)


def _index(studies: list[str]) -> Finding:
    if not studies:
        return Finding("index", "ok", "Optuna's index knows every ended trial")
    return Finding(
        "index",
        "note",
        f"Optuna's index is behind the record of {named(studies)}",
        "nothing is lost: their next search tells it",
    )


def _sources(store: Store) -> Iterator[Finding]:
    """The files that models were registered from."""
    gone = [
        record
        for record in store.models()
        if Path(record.source).is_absolute() and not Path(record.source).exists()
    ]
    for record in gone:
        yield Finding(
            "models",
            "note",
            f"the file of {record.name} is gone: {record.source}",
            f"put it back, or name its new place: cputune models add FILE --name {quote(record.name)}",
        )
    if not gone:
        yield Finding("models", "ok", "every registered model's file is there")


def _variants(store: Store, home: Home) -> Iterator[Finding]:
    """The made files that published profiles run on."""
    models = {record.info.digest: record for record in store.models()}
    cache = VariantCache(home.variants)
    missing: dict[tuple[str, str], str] = {}
    for profile in store.profiles(limit=_NEWEST):
        record = models.get(profile.model_digest)
        if record is None or profile.invalidated or profile.config.engine not in engines.references():
            continue
        engine = engines.get(profile.config.engine)
        recipe = next((r for r in engine.recipes(record.info) if r.label == profile.config.variant), None)
        if recipe is None or recipe.is_source:
            continue
        if not cache.path(engine, record.info, recipe, profile.engine_build).exists():
            missing.setdefault((record.name, recipe.label), profile.id)
    for (model, label), profile_id in sorted(missing.items()):
        yield Finding(
            "variants",
            "note",
            f"{label} of {model}, which {profile_id} runs on, is not in the cache",
            f"cputune models prepare {quote(model)} --variants {label}",
        )
    if not missing:
        yield Finding("variants", "ok", "every published profile's file is there")
