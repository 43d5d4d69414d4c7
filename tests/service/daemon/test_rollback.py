"""`cputune rollback`, and decisions in `cputune history`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from probes.machine import probe
from profiles.records import Profile, ProfileStatus, Promotion, PromotionAction
from profiles.store import Store
from profiles.vocabulary import WORKLOADS, Config, Objective
from tests.support.tiny import write_tiny_model
from tuner.cli.documents import schemas
from tuner.cli.main import run
from tuner.home import Home
from tuner.setup import add_model

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(home: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def promoted(home: Path, tmp_path: Path) -> str:
    """A profile that was promoted over the defaults."""
    machine = probe()
    with Store.open(Home(home).database) as store:
        store.save_machine(machine, "host")
        _, model = add_model(store, Home(home), str(write_tiny_model(tmp_path / "tiny.gguf")), None)
        config = Config.of("simulated", "source", {})
        profile = Profile(
            fingerprint=machine.fingerprint, model_digest=model.digest, workload=WORKLOADS["chat"],
            objectives=(Objective("response_ms"),), quality_level="near-lossless",
            status=ProfileStatus.CONFIRMED, conditions="quiet", config=config, variant_digest="00",
            bits_per_weight=8.5, metrics={"response_ms.p50": 800.0}, baseline_config=config,
            baseline_metrics={"response_ms.p50": 1000.0}, engine_build="1.0", kernel="6.1",
        )  # fmt: skip
        found = store.publish(profile).id
        store.record_promotion(
            Promotion(
                fingerprint=machine.fingerprint, model_digest=model.digest, workload=WORKLOADS["chat"],
                action=PromotionAction.PROMOTED, running_id=found, other_id=None,
                reason="the kernel was 6.0, is 6.1", numbers={"ratio": 1.25},
            )
        )  # fmt: skip
    return found


def test_a_rollback_is_a_row_with_its_reason(call: Call, promoted: str):
    code, out, _ = call("rollback", "--reason", "it answers strangely", "--json")
    assert code == 0
    document = json.loads(out)
    assert list(Draft202012Validator(schemas()["rollback"]).iter_errors(document)) == []
    row = document["promotion"]
    assert (row["action"], row["running"], row["other"]) == ("rolled_back", None, promoted)
    assert row["reason"] == "it answers strangely"


def test_a_rollback_says_what_runs_again(call: Call, promoted: str):
    assert call("rollback", "--model", "tiny") == (
        0,
        f"{promoted} is given up: the engine's defaults run again\n",
        "",
    )


def test_there_is_nothing_before_the_defaults(call: Call, promoted: str):
    call("rollback")
    code, out, err = call("rollback")
    assert (code, out) == (3, "")
    assert "nothing before them" in err


def test_without_a_promotion_there_is_nothing_to_roll_back(call: Call):
    code, _, err = call("rollback")
    assert code == 3
    assert "nothing was promoted on this machine yet; cputune daemon promotes" in err


def test_the_history_tells_decisions_with_numbers_and_reasons(call: Call, promoted: str):
    call("rollback", "--reason", "a test")
    code, out, _ = call("history", "--json")
    document = json.loads(out)
    assert code == 0
    assert list(Draft202012Validator(schemas()["history"]).iter_errors(document)) == []
    back, first = document["promotions"]
    assert (back["action"], back["model"]) == ("rolled_back", "tiny")
    assert (first["numbers"], first["reason"]) == ({"ratio": 1.25}, "the kernel was 6.0, is 6.1")
    told = " ".join(call("history")[1].split())
    assert f"promoted {promoted} over the defaults: the kernel was 6.0, is 6.1" in told
    assert f"rolled back from {promoted} to the defaults: a test" in told
