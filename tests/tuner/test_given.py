"""Bounds of what a user may give: more threads than CPUs are compared, far more are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.machine import probe
from tests.support.flow import Flow
from tests.support.tiny import write_tiny_model
from tuner.compare import CompareRequest, compare
from tuner.errors import UsageError
from tuner.events import ignore

CPUS = probe().effective.cpu_count
MOST = min(8 * CPUS, 1024)


def written(folder: Path, count: object) -> str:
    path = folder / "side.yaml"
    path.write_text(f"engine: simulated\nsettings: {{n_threads: {json.dumps(count)}}}\n")
    return str(path)


def asked(flow: Flow, side: str) -> None:
    request = CompareRequest(side, "default", model=str(flow.model), engines=("simulated",))
    compare(request, home=flow.home, observer=ignore)


@pytest.mark.parametrize("count", [MOST + 1, 10**9])
def test_p18_a_side_far_above_the_cpus_is_refused(flow: Flow, tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError) as caught:
        asked(flow, written(tmp_path, count))
    assert f"side.yaml: n_threads={count}: allowed is 1 to {MOST}, 8 for each of {CPUS} CPUs" in str(
        caught.value
    )


def test_p18_a_command_far_above_the_cpus_is_refused(flow: Flow) -> None:
    with pytest.raises(UsageError, match=f"n_threads_batch={MOST + 1}: allowed is 1 to {MOST}"):
        asked(flow, f"llama-server -m {flow.model} -tb {MOST + 1}")


def test_an_error_names_the_side_and_no_option_that_was_not_given(flow: Flow) -> None:
    with pytest.raises(UsageError, match=r"^command: unknown flag '--thread' .* did you mean --threads\?$"):
        asked(flow, f"llama-server -m {flow.model} --thread 2")
    with pytest.raises(UsageError, match=r"^command: type_k=q5_1: allowed is"):
        asked(flow, f"llama-server -m {flow.model} -ctk q5_1")


def test_a_command_of_another_model_is_refused(flow: Flow, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other.gguf", weight=0.5)
    with pytest.raises(UsageError, match=r"^command: \S+other\.gguf is another model than tiny: "):
        asked(flow, f"llama-server -m {other}")


def test_p18_a_side_at_the_bound_is_measured(flow: Flow, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tuner.compare.measure", lambda _shop, _study, _sides, configs, *_: configs)
    request = CompareRequest(
        written(tmp_path, MOST), f"llama-server -m {flow.model} -t {MOST}", model=str(flow.model),
        engines=("simulated",),
    )  # fmt: skip
    a, b = compare(request, home=flow.home, observer=ignore)
    assert a.get("n_threads") == b.get("n_threads") == MOST
    assert (a.get("flash_attn"), b.get("flash_attn")) == ("off", "on")


def test_a_comparison_takes_the_commands_model(flow: Flow, monkeypatch) -> None:
    monkeypatch.setattr("tuner.compare.measure", lambda shop, *_: {"source": shop.source.spec})
    request = CompareRequest(f"llama-server -m {flow.model}", "default", engines=("simulated",))
    assert compare(request, home=flow.home, observer=ignore) == {"source": str(flow.model)}
