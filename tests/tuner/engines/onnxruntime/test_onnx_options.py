"""What the runtime's log says of a session, and what is made of it."""

from __future__ import annotations

import pytest

from tuner.engines.base import EngineError
from tuner.engines.onnxruntime.model import check_affinity, effective_settings

pytestmark = pytest.mark.real


ALLOWED, DURATION = "session.intra_op.allow_spinning", "session.intra_op.spin_duration_us"


def line(level: int, threads: int, entries: str) -> str:
    return (
        "2026-01-01 [I:onnxruntime:x, inference_session.cc:778 TraceSessionOptions] Session Options { "
        f" execution_mode:0 graph_optimization_level:{level} intra_op_param:OrtThreadPoolParams {{"
        f" thread_pool_size: {threads} auto_set_affinity: 0 allow_spinning: 1 spin_duration_us: -1 }}"
        " inter_op_param:OrtThreadPoolParams { thread_pool_size: 7 auto_set_affinity: 0 allow_spinning: 1 }"
        f" use_per_session_threads:1 config_options: {{   {entries} }} }}"
    )


@pytest.mark.parametrize(
    ("logged", "level", "threads", "spinning"),
    [
        ((4, 2, f"{ALLOWED}: 1"), "all", 2, "on"),
        ((99, 1, f"{ALLOWED}: 0"), "all", 1, "off"),
        ((2, 3, f"{DURATION}: 200  another.entry: 5  {ALLOWED}: 1"), "extended", 3, "short"),
        ((0, 3, f"{ALLOWED}: 1"), "disabled", 3, "on"),
    ],
)
def test_e12_what_was_logged_is_what_holds(
    logged: tuple[int, int, str], level: str, threads: int, spinning: str
) -> None:
    assert effective_settings(["[W:x] first", line(*logged)]) == {
        "graph_optimization_level": level,
        "intra_op_num_threads": threads,
        "spinning": spinning,
    }


def test_e12_what_no_log_tells_is_unknown() -> None:
    assert effective_settings(["[I:onnxruntime:x] Initializing session."]) == {}
    assert effective_settings(["Session Options { a_new_name:1 }"]) == {}
    longer = line(4, 2, f"{ALLOWED}: 1  {DURATION}: 90000")
    assert set(effective_settings([longer])) == {"graph_optimization_level", "intra_op_num_threads"}


def test_e01_a_pool_that_can_not_pin_its_threads_is_an_error() -> None:
    refusal = (
        "[E:onnxruntime:Default, env.cc:234 ThreadMain] pthread_setaffinity_np failed for thread: 12,"
        " index: 1, mask: {2, }, error code: 22 error msg: Invalid argument."
    )
    check_affinity([line(4, 2, f"{ALLOWED}: 1")])
    with pytest.raises(EngineError, match=r"could not pin its threads: .*Invalid argument"):
        check_affinity([line(4, 2, f"{ALLOWED}: 1"), refusal])
