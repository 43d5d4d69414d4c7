"""The options of `cputune search` that change the question: lengths, objective, limits, space."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profiles.store import Store
from profiles.vocabulary import WORKLOADS, Limit, Objective, Workload
from tests.support.flow import Flow
from tuner.cli.main import run

SEARCH = ["search", "--engines", "simulated"]


def in_the_store(flow: Flow, found: dict[str, Any]):
    with flow.store() as store:
        return store.profile(found["best"]["profile_id"]), store.study(found["study"])


# --- arguments that are refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--objective", "ttft_ms,itl_ms,tpot_ms"], ("one metric or two", "--limit")),
        (["--objective", "response"], ("did you mean response_ms?",)),
        (["--limit", "peak_rss<=3"], ("did you mean peak_rss_mib?",)),
        (["--limit", "ttft_ms"], ("METRIC<=VALUE",)),
        (["--prompt-tokens", "0"], ("--prompt-tokens=0", "1 to")),
        (["--output-tokens", "1"], ("--output-tokens=1", "2 to")),
        (["--streams", "0"], ("--streams=0", "1 to 256")),
        (["--prompt-tokens", "9000"], ("(9000 prompt + 128 output) needs 9128 tokens", "8192")),
        (["--leave-cores", "-1"], ("--leave-cores -1", "0 to")),
        (["--leave-cores", "4096"], ("--leave-cores 4096", "0 to")),
        (["--workload", "nowhere.yaml"], ("nowhere.yaml",)),
        (["--space", "nowhere.yaml"], ("nowhere.yaml",)),
        (["--answers-unchanged", "--variants", "q8_0"], ("--variants",)),
        (["--storage", "nothing://here"], ("storage URL",)),
    ],
)
def test_e14_what_can_not_be_asked_is_one_line_and_exit_2(flow: Flow, capsys, arguments, parts):
    code = 1 if "--storage" in arguments else 2
    assert run([*SEARCH, "--model", str(flow.model), *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    for part in ("cputune: ", *parts):
        assert part in line


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("n_threads: [1, 4096]", ("n_threads=4096", "1 to")),
        ("n_thread: 1", ("unknown setting 'n_thread'", "did you mean n_threads?")),
        ("n_ubatch: 0", ("n_ubatch=0", "1 to 512")),
        ("type_v: q8_0\nflash_attn: off", ("type_v=q8_0", "flash_attn=on")),
    ],
)
def test_p18_e09_e14_values_of_a_space_are_checked(flow: Flow, capsys, tmp_path: Path, text, parts):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    assert run([*SEARCH, "--model", str(flow.model), "--space", str(path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    for part in parts:
        assert part in line


# --- searches -----------------------------------------------------------------------------------


def test_lengths_objective_and_storage_reach_the_search(flow: Flow, capsys, tmp_path, quick_quality):
    elsewhere = tmp_path / "other.sqlite3"
    call = [*SEARCH, "--model", str(flow.model), "--storage", str(elsewhere), "--json"]
    call += ["--prompt-tokens", "32", "--output-tokens", "8", "--objective", "ttft_ms"]
    assert run([*call, "--trials", "2", "--budget", "10s"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["workload"] == {
        "name": "32+8",
        "prompt_tokens": 32,
        "output_tokens": 8,
        "streams": 1,
        "objective": "ttft_ms",
    }
    assert document["objective"] == "ttft_ms"
    with Store.open(elsewhere) as store:
        profile = store.profile(document["best"]["profile_id"])
        assert profile.objectives == (Objective("ttft_ms"),)
        assert profile.workload.output_tokens == 8
    assert not flow.home.database.exists()
    # Asked again, it is known there.
    assert run(call) == 0
    assert json.loads(capsys.readouterr().out)["measured_now"] is False


def test_several_streams_are_compared_by_the_rate_that_is_shown(flow: Flow, quick_quality):
    document = flow.search(workload=WORKLOADS["batch"], trials=4, pairs=20)
    assert document["objective"] == "decode_tps"
    default, best = (document[side]["metrics"]["decode_tps.p50"] for side in ("baseline", "best"))
    assert document["speedup"]["ratio"] == pytest.approx(best / default, rel=1e-3)
    assert document["speedup"]["ratio"] > 1.0
    trial = next(t for t in flow.trials() if t.config.to_json()["settings"] == document["baseline"]["config"])
    # What guides the search is close to what is measured at last.
    assert trial.objective_value == pytest.approx(default, rel=0.03)


def test_a_limit_is_kept_by_what_is_published_even_if_the_default_breaks_it(flow: Flow, quick_quality):
    first = flow.search(trials=5)
    limit = Limit("ttft_ms", "<=", first["baseline"]["metrics"]["ttft_ms.p50"] / 2)
    document = flow.search(trials=2, limits=(limit,))
    assert document["limits"] == [str(limit)]
    assert document["best"]["metrics"]["ttft_ms.p50"] <= limit.value
    (reason,) = document["default_unkept"]
    assert reason.startswith(str(limit))
    profile, study = in_the_store(flow, document)
    assert profile.limits == study.limits == (limit,)
    assert study.request["limits"] == [str(limit)]
    # The same study, since limits measure nothing anew; but another question.
    assert document["study"] == first["study"]
    assert flow.search(bounded=False, limits=(limit,))["best"]["profile_id"] == profile.id
    assert flow.search(bounded=False)["best"]["profile_id"] == first["best"]["profile_id"]


def test_s07_a_search_in_which_nothing_keeps_the_limits(flow: Flow, capsys, quick_quality):
    call = [*SEARCH, "--model", str(flow.model), "--trials", "4", "--budget", "10s"]
    call += ["--limit", "peak_rss_mib<=1", "--limit", "decode_tps>=1"]
    assert run([*call, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["best"], document["speedup"]) == ("infeasible", None, None)
    assert document["trials"]["infeasible"] == 4
    assert document["nearest"]["broken"][0].startswith("peak_rss_mib<=1: it is ")
    assert len(document["nearest"]["broken"]) == 1
    with flow.store() as store:
        assert str(store.study(document["study"]).status) == "infeasible"
        assert store.profiles() == ()
    assert run(call) == 3
    printed = capsys.readouterr().out
    assert "Nothing feasible" in printed
    assert "Nearest: simulated" in printed
    assert "peak_rss_mib<=1" in printed
    assert run(["show", document["study"]]) == 0


SHORT = Workload("short", 16, 8)


def test_a_p95_that_is_not_earned_is_not_claimed(flow: Flow, quick_quality):
    document = flow.search(workload=SHORT, trials=2, limits=(Limit("ttft_ms.p95", "<=", 1e6),))
    assert document["status"] == "infeasible"
    assert document["nearest"]["broken"] == ["ttft_ms.p95<=1e+06: not measured: a p95 needs 59 clean samples"]


def test_a_p95_is_earned_where_time_is_left(flow: Flow, quick_quality):
    limit = Limit("ttft_ms.p95", "<=", 1e6)
    document = flow.search(workload=SHORT, trials=2, pairs=20, limits=(limit,))
    assert document["status"] == "confirmed"
    metrics = document["best"]["metrics"]
    assert metrics["ttft_ms.p95"] <= limit.value
    assert "ttft_ms.max_of_n" not in metrics


def test_left_cores_are_not_used_by_what_is_published(flow: Flow, quick_quality):
    document = flow.search(trials=4, leave_cores=1)
    left = document["machine"]["effective_cpus"] - 1
    threads = [document["best"]["config"][name] for name in ("n_threads", "n_threads_batch")]
    assert max(threads) <= left
    assert max(document["baseline"]["config"][name] for name in ("n_threads", "n_threads_batch")) > left
    for trial in flow.trials()[1:]:
        assert trial.config.get("n_threads_batch") <= left


def test_answers_unchanged_leaves_file_and_cache_alone(flow: Flow, quick_quality):
    flow.search(trials=5, answers_unchanged=True)
    trials = flow.trials()
    assert len(trials) >= 5
    for trial in trials:
        assert trial.config.variant == "source"
        assert (trial.config.get("type_k"), trial.config.get("type_v")) == ("f16", "f16")


def test_a_space_is_searched_as_the_file_says(flow: Flow, quick_quality):
    flow.search(trials=6, space={"n_ubatch": (48, 64), "flash_attn": ("on",)})
    for trial in flow.trials()[1:]:
        assert trial.config.get("n_ubatch") in (48, 64)
        assert trial.config.get("flash_attn") == "on"
    assert flow.study().request["space"] == {"n_ubatch": [48, 64], "flash_attn": ["on"]}
