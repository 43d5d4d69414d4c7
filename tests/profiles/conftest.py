"""A store in a temporary folder."""

import shutil
from pathlib import Path

import pytest
from store_examples import MACHINE, MODEL, SPEC

from profiles.records import StudyRecord
from profiles.store import Store, owner_token


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "cputune.sqlite3"


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that knows the machine and the model, made once to be copied."""
    path = tmp_path_factory.mktemp("template") / "cputune.sqlite3"
    with Store.open(path) as store:
        store.save_machine(MACHINE, "host")
        store.save_model(MODEL, "package:tiny", "tiny")
    return path


@pytest.fixture
def store(path: Path, template: Path) -> Store:
    """A store that knows the machine and the model."""
    path.parent.mkdir()
    shutil.copy(template, path)
    return Store.open(path)


@pytest.fixture
def study(store: Store) -> StudyRecord:
    return store.open_study(SPEC, owner_token())
