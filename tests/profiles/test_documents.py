"""Documents: written, read back, refused with the path of what is wrong."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_examples import DEFAULT, FAST, MACHINE, PROFILE

from profiles.documents import (
    Format,
    dumps,
    loads,
    machine_document,
    profile_document,
    read_machine,
    read_profile,
)
from profiles.errors import DocumentError
from profiles.records import StudyRecord
from profiles.store import Store
from profiles.vocabulary import Config, Quality

STYLES: tuple[Format, ...] = ("yaml", "json")
setting = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@pytest.mark.parametrize("style", STYLES)
def test_a_profile_moves_to_another_store(store: Store, study: StudyRecord, style: Format) -> None:
    published = store.publish(replace(PROFILE, study_id=study.id, facts={"note": "ü"}))
    text = dumps(profile_document(published), style)
    read = read_profile(loads(text, "x"), "x")
    origin = {"origin_id": published.id, "origin_study": study.id}
    assert read == replace(PROFILE, facts={"note": "ü", **origin})
    assert store.publish(read).config == FAST


@given(
    st.dictionaries(st.text(), setting, max_size=4),
    st.floats(allow_nan=False),
    st.sampled_from(STYLES),
)
@settings(max_examples=50, deadline=None)
def test_settings_and_numbers_keep_type_and_value(
    chosen: dict[str, bool | int | float | str], kl: float, style: Format
) -> None:
    profile = replace(
        PROFILE,
        config=Config.of("simulated", "source", chosen),
        quality=Quality(kl, kl, 1.0, 1.0, 1.0, 64),
    )
    read = read_profile(loads(dumps(profile_document(profile), style), "x"), "x")
    assert read == profile
    assert read.config.key == profile.config.key


def test_a_document_says_what_it_is() -> None:
    document = profile_document(PROFILE)
    assert (document["schema_version"], document["kind"]) == (1, "profile")
    assert document["config"] == FAST.to_json()
    assert document["baseline"] == {"config": DEFAULT.to_json(), "metrics": {"response_ms.p50": 1000.0}}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("config", "settings", "n_threads"), None, r"f\.yaml: config\.settings\.n_threads"),
        (("metrics", "ttft_ms.p50"), "fast", r"f\.yaml: metrics\.ttft_ms\.p50: .*; got 'fast'"),
        (("workload", "prompt_tokens"), "many", r"f\.yaml: workload\.prompt_tokens: .*integer"),
        (("objectives",), [], r"f\.yaml: objectives: "),
        (("limits",), [{"metric": "x", "operator": "<", "value": 1}], r"f\.yaml: limits\.0\.operator: "),
        (("status",), "great", r"f\.yaml: status: .*'confirmed'.*; got 'great'"),
        (("colour",), "red", r"f\.yaml: colour: Extra inputs are not permitted; got 'red'"),
        (("kind",), "machine", r"f\.yaml: kind: .*'profile'.*; got 'machine'"),
        (("schema_version",), 2, r"f\.yaml: schema_version; got 2; allowed: 1 to 1; a newer one"),
        (("schema_version",), True, r"f\.yaml: schema_version; got True"),
        (("schema_version",), "1", r"f\.yaml: schema_version; got '1'"),
    ],
)
def test_a_wrong_key_is_named_by_its_path(path: tuple[str, ...], value: object, expected: str) -> None:
    document = json.loads(json.dumps(profile_document(PROFILE)))
    part = document
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(DocumentError, match=expected):
        read_profile(document, "f.yaml")


def test_a_missing_key_is_named_by_its_path() -> None:
    document = json.loads(json.dumps(profile_document(PROFILE)))
    del document["baseline"]["config"]["engine"]
    with pytest.raises(DocumentError, match=r"f\.yaml: baseline\.config\.engine: Field required$"):
        read_profile(document, "f.yaml")


@pytest.mark.parametrize("text", ["", "- 1", "just text", "7", "[1]"])
def test_what_is_no_mapping_is_no_profile(text: str) -> None:
    with pytest.raises(DocumentError, match="x holds no profile"):
        read_profile(loads(text, "x"), "x")


@pytest.mark.parametrize("text", ['{"a": ', "a: [1\nb: }", "!!python/object:os.system {}", "{a: &x [*y]}"])
def test_broken_text_is_told_in_one_line(text: str) -> None:
    with pytest.raises(DocumentError, match="x is neither JSON nor YAML") as caught:
        loads(text, "x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("style", STYLES)
def test_a_machine_goes_and_comes(style: Format) -> None:
    assert read_machine(loads(dumps(machine_document(MACHINE), style), "x"), "x") == MACHINE


def test_a_machine_is_read_from_what_probe_prints() -> None:
    assert read_machine(MACHINE.to_json(), "x") == MACHINE


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "profile"}, r"m\.json: kind; got 'profile'; allowed: machine"),
        ({"schema_version": 99}, r"m\.json: .*schema_version"),
        ({"fingerprint": None}, r"m\.json: .*fingerprint"),
        ({"physical_cores": "two"}, r"m\.json: machine\.physical_cores .*'two'"),
    ],
)
def test_a_wrong_machine_is_refused(change: dict[str, object], expected: str) -> None:
    with pytest.raises(DocumentError, match=expected):
        read_machine({**machine_document(MACHINE), **change}, "m.json")
