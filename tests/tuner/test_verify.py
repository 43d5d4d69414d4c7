"""A running server against a profile: its speed, what is left of the gain, clear ends for all else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from profiles.errors import NotFoundError
from profiles.records import Profile
from profiles.vocabulary import Interval, Objective, Workload
from tests.support.flow import JUMP_S, Flow
from tests.support.openai_server import Fake, serving
from tuner.cli.documents import schemas
from tuner.cli.main import run
from tuner.errors import ServerError
from tuner.events import Event
from tuner.verify import VerifyRequest, _promise, _speed, verify

Verify = Callable[..., dict[str, Any]]


@pytest.fixture
def profile_id(flow_after: Flow) -> str:
    with flow_after.store() as store:
        return store.profiles()[0].id


@pytest.fixture
def verified(flow_after: Flow, profile_id: str) -> Verify:
    """Verify a fake server; the clock jumps to the end of the budget after eight pairs."""

    def run_it(fake: Fake, pairs: int = 8, **changes: Any) -> dict[str, Any]:
        jumped_s = 0.0

        def watch(event: Event) -> None:
            nonlocal jumped_s
            if event.kind == "pair" and event.detail["pair"] == pairs:
                jumped_s = JUMP_S

        with serving(fake) as url:
            request = VerifyRequest(**{"profile": profile_id, "url": url, **changes})
            document = verify(
                request, home=flow_after.home, observer=watch, clock=lambda: time.monotonic() + jumped_s
            )
        printed = json.loads(json.dumps({"schema_version": 1, **document}, allow_nan=False))
        assert list(Draft202012Validator(schemas()["verify"]).iter_errors(printed)) == []
        return document

    return run_it


def test_a_server_is_measured_in_turn_with_the_profile(verified: Verify, workers: list[int]) -> None:
    fake = Fake()
    document = verified(fake)
    assert document["pairs"] >= 8
    assert len(workers) >= document["pairs"]
    assert len(set(fake.prompts)) == len(fake.prompts) > document["pairs"]
    # The simulated engine takes hundreds of milliseconds of its own clock, the fake server a few real ones.
    assert document["verdict"] == "faster"
    speed = document["speed"]
    assert 1 < speed["low"] <= speed["estimate"] <= speed["high"]
    assert document["serving_tax"]["estimate"] == pytest.approx(1 / speed["estimate"] - 1)
    assert (
        set(document["ours"])
        >= {"response_ms.p50", "ttft_ms.p50", "decode_tps.p50"}
        <= set(document["theirs"])
    )


def test_what_the_server_could_not_do_is_in_the_notes(verified: Verify) -> None:
    document = verified(Fake(ends_after=40, knows_ignore_eos=False, tells_usage=False), pairs=3)
    assert any("answers of 40 tokens came where 128 were asked" in note for note in document["notes"])


@pytest.mark.parametrize("fake", [Fake(streams=False), Fake(dies_after=3), Fake(token="secret")])
def test_a_server_that_can_t_be_measured_ends_it(fake: Fake, verified: Verify, workers: list[int]) -> None:
    with pytest.raises(ServerError):
        verified(fake)


def test_nothing_is_started_for_a_server_that_is_not_there(
    flow_after: Flow, profile_id: str, workers: list[int]
) -> None:
    request = VerifyRequest(profile_id, "http://127.0.0.1:9")
    with pytest.raises(ServerError, match="can't be reached"):
        verify(request, home=flow_after.home, observer=lambda _: None)
    assert workers == []


def test_an_unknown_profile(flow_after: Flow) -> None:
    with pytest.raises(NotFoundError, match="no profile 'p-none'"):
        verify(VerifyRequest("p-none", "http://127.0.0.1:9"), home=flow_after.home, observer=lambda _: None)


def test_speed_is_of_the_server_for_times_and_rates() -> None:
    ratio = Interval(0.8, 0.7, 0.9, 0.99)
    assert _speed(ratio, Objective("response_ms")) == ratio
    rate = _speed(ratio, Objective("decode_tps", "maximize"))
    assert (rate.estimate, rate.low, rate.high) == (1.25, 1 / 0.9, 1 / 0.7)


def test_what_is_left_of_the_promise(flow_after: Flow) -> None:
    with flow_after.store() as store:
        profile = replace(store.profiles()[0], speedup=Interval(2.0, 1.9, 2.1, 0.99))
    kept = _promise(profile, Interval(0.75, 0.7, 0.8, 0.98))
    assert kept["reached"] == pytest.approx({"estimate": 1.5, "low": 1.4, "high": 1.6})
    assert kept["gain_kept"] == pytest.approx({"estimate": 0.5, "low": 0.4, "high": 0.6})
    for nothing in (None, Interval(1.0, 1.0, 1.0, 1.0), Interval(1.1, 0.9, 1.3, 0.9)):
        assert _promise(replace(profile, speedup=nothing), Interval(0.7, 0.7, 0.7, 0.9))["gain_kept"] is None


def test_the_command_line(
    flow_after: Flow, profile_id: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "secret")
    with serving(Fake(token="secret")) as url:
        assert run(["verify", profile_id, "--url", url, "--token-env", "KEY", "--budget", "10s"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"m at {url} against {profile_id}, chat:")
    assert "x the profile's speed by response_ms (" in out
    assert "Of the promised " in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--token-env", "NOT_SET_HERE"), "--token-env NOT_SET_HERE holds no token"),
        (("--token-file", "/no/such/file"), "--token-file /no/such/file can't be read: No such file"),
        (("--token-env", "A", "--token-file", "b"), "name two tokens"),
        (("--url", "nowhere"), "is no address"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: tuple[str, ...],
    says: str,
    flow_after: Flow,
    profile_id: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["verify", profile_id, "--url", "http://127.0.0.1:9", *arguments]) == 2
    answer = capsys.readouterr()
    assert (answer.out, len(answer.err.splitlines())) == ("", 1)
    assert says in answer.err


def test_workloads_with_rates_and_streams(flow_after: Flow, profile_id: str, verified: Verify) -> None:
    batch = Workload("b", 16, 16, streams=3, objective="decode_tps")
    with flow_after.store() as store:
        known = store.profile(profile_id)
        fields = {name: getattr(known, name) for name in Profile.__dataclass_fields__}
        other = {"workload": batch, "objectives": (Objective("decode_tps", "maximize"),), "study_id": None}
        published = store.publish(Profile(**{**fields, **other, "trial_ids": (), "comparison_id": None}))
    fake = Fake()
    document = verified(fake, pairs=3, profile=published.id)
    assert document["metric"] == "decode_tps"
    assert document["speed"]["estimate"] > 1
    assert len(fake.prompts) % 3 == 0
