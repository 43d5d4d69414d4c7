"""Machines, models, variants and quality: stored, renewed, found."""

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_examples import MACHINE, MODEL

from probes.machine import Machine
from profiles.errors import NotFoundError
from profiles.records import QualityKey, VariantRecord
from profiles.store import Store
from profiles.vocabulary import Quality

VARIANT = VariantRecord(
    MODEL.digest,
    "llama_cpp",
    "q8_0",
    "cd" * 32,
    {"q8_0": 5_000_000_000},
    8.5,
    5_000_000_000,
    {"type": "q8_0"},
)
KEY = QualityKey("cd" * 32, (("type_k", "f16"), ("flash", True)), "ref", "text 1", "sim 1")


def test_a_machine_comes_back_and_is_renewed(store: Store) -> None:
    store.save_machine(MACHINE, "new name")
    (record,) = store.machines()
    assert record == store.machine(MACHINE.fingerprint)
    assert record.label == "new name"
    assert Machine.from_json(record.document) == MACHINE


def test_a_measured_bandwidth_outlives_a_description_without_one(store: Store) -> None:
    measured = Machine.from_json({**MACHINE.to_json(), "bandwidth_gbps": 47.0})
    store.save_machine(measured, "host")
    expected = store.machine(MACHINE.fingerprint).document
    assert expected["bandwidth_gbps"] == 47.0
    store.save_machine(MACHINE, "host")
    assert store.machine(MACHINE.fingerprint).document == expected


def test_an_unknown_machine(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no machine 'cafe'"):
        store.machine("cafe")


@pytest.mark.parametrize("wanted", ["tiny", MODEL.digest, MODEL.digest[:6]])
def test_a_model_is_found_by_name_and_digest(store: Store, wanted: str) -> None:
    record = store.model(wanted)
    assert (record.name, record.source, record.info) == ("tiny", "package:tiny", MODEL)


def test_registering_again_renews_name_and_source(store: Store) -> None:
    store.save_model(MODEL, "/other/file.gguf", "small")
    (record,) = store.models()
    assert (record.name, record.source) == ("small", "/other/file.gguf")


def test_a_name_goes_to_the_newest_model(store: Store) -> None:
    other = replace(MODEL, digest="ef" * 32)
    store.save_model(other, "package:tiny", "tiny")
    assert store.model("tiny").info == other
    assert store.model(MODEL.digest).name == f"tiny@{MODEL.digest[:12]}"


def test_an_unknown_model_lists_near_names(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no model 'tinny'; near: tiny; `cputune models list`"):
        store.model("tinny")


def test_a_shared_beginning_is_refused(store: Store) -> None:
    store.save_model(replace(MODEL, digest="abcd" * 16), "x", "other")
    with pytest.raises(NotFoundError, match="'ab' is the beginning of 2 names"):
        store.model("ab")


def test_variants_come_back_largest_first_and_are_renewed(store: Store) -> None:
    small = replace(VARIANT, label="q4_0", digest="aa" * 32, file_bytes=10)
    for variant in (small, VARIANT, replace(small, file_bytes=11)):
        store.save_variant(variant)
    assert store.variants(MODEL.digest) == (VARIANT, replace(small, file_bytes=11))
    assert store.variants("unknown") == ()


def test_two_engines_may_call_their_variants_alike(store: Store) -> None:
    other = replace(VARIANT, engine="openvino", digest="bb" * 32)
    for variant in (other, VARIANT):
        store.save_variant(variant)
    assert store.variants(MODEL.digest) == (VARIANT, other)


def test_a_variant_needs_its_model(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no model 'nobody'"):
        store.save_variant(replace(VARIANT, model_digest="nobody"))


numbers = st.floats(allow_nan=False)


@given(st.builds(Quality, numbers, numbers, numbers, numbers, numbers, st.integers(1, 10**6)))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_quality_comes_back_exactly(store: Store, quality: Quality) -> None:
    store.save_quality(KEY, quality)
    assert store.quality(KEY) == quality
    assert store.quality(replace(KEY, settings=tuple(reversed(KEY.settings)))) == quality


def test_a_broken_quality_is_kept_as_broken(store: Store) -> None:
    store.save_quality(KEY, Quality(math.nan, math.inf, 0.0, 0.0, math.inf, 64))
    found = store.quality(KEY)
    assert found is not None
    assert math.isnan(found.kl_divergence)


@pytest.mark.parametrize(
    "change",
    [
        {"variant_digest": "x"},
        {"settings": (("type_k", "q8_0"), ("flash", True))},
        {"reference_digest": "x"},
        {"text_version": "x"},
        {"engine_build": "x"},
    ],
)
def test_quality_is_not_reused_under_other_conditions(store: Store, change: dict[str, object]) -> None:
    store.save_quality(KEY, Quality(0, 0, 1, 1, 1, 64))
    assert store.quality(replace(KEY, **change)) is None
