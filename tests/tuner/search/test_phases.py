"""What a round says of the phases, whatever way its streams were served."""

import pytest

from profiles.vocabulary import RoundSamples, Workload
from tuner.search.objectives import objective_of, predict
from tuner.search.phases import phase_times

MANY = Workload("many", 128, 128, streams=8, objective="decode_tps")
STEP_MS, CHUNK_MS = 10.0, 100.0


def served(active: int, tokens: int, step_ms: float = STEP_MS) -> RoundSamples:
    """Eight streams in waves of `active`: each wave's prompts, then its tokens."""
    now, firsts, gaps = 0.0, [], []
    for _ in range(8 // active):
        now += CHUNK_MS * active / 4
        firsts += [now] * active
        gaps += [(step_ms,) * (tokens - 1)] * active
        now += step_ms * (tokens - 1)
    return RoundSamples(kind="short", ttft_ms=tuple(firsts), gaps_ms=tuple(gaps), wall_ms=now)


def tokens_per_second(samples: RoundSamples) -> float:
    times = phase_times(samples, MANY)
    assert times.ttft_ms is not None
    assert times.itl_ms is not None
    return predict(objective_of(MANY), MANY, times.ttft_ms, times.itl_ms)


@pytest.mark.parametrize("active", [1, 2, 4, 8])
def test_a_short_round_predicts_the_whole_workloads_rate(active: int):
    whole = served(active, 128)
    wall_ms = whole.wall_ms - whole.ttft_ms[0]
    # Of the tokens, each stream's first comes with its prompt.
    rate = 8 * 127 * 1000 / wall_ms
    assert tokens_per_second(served(active, 48)) == pytest.approx(rate, rel=0.08)
    assert tokens_per_second(whole) == pytest.approx(tokens_per_second(served(active, 48)), rel=0.01)


def test_fewer_streams_at_once_do_not_look_faster_than_they_are():
    # One at a time takes a little less a step, and eight times as many steps.
    assert tokens_per_second(served(1, 48, step_ms=8.0)) < tokens_per_second(served(8, 48)) / 4


def test_tokens_beside_prompts_are_not_taken_for_the_rate_of_decoding():
    # The first of two streams makes ten slow tokens while the second one's prompt enters.
    samples = RoundSamples(
        kind="short",
        ttft_ms=(100.0, 1100.0),
        gaps_ms=((100.0,) * 10 + (10.0,) * 9, (10.0,) * 19),
        wall_ms=1290.0,
    )
    assert phase_times(samples, Workload("two", 64, 20, streams=2)).itl_ms == pytest.approx(10.0)


def test_a_single_stream_has_medians():
    samples = RoundSamples(kind="short", ttft_ms=(50.0,), gaps_ms=((1.0, 2.0, 9.0),))
    assert phase_times(samples, Workload("one", 8, 4)) == (50.0, 2.0)
    assert phase_times(RoundSamples(kind="short", ttft_ms=(50.0,), gaps_ms=((),)), MANY) == (50.0, None)
