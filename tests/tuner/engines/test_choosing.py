"""The next token, chosen from logits of known distributions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tuner.engines.base import EngineError, Sampling
from tuner.engines.choosing import Chooser

PROBABILITIES = np.array([0.4, 0.3, 0.2, 0.07, 0.03])
LOGITS = np.log(PROBABILITIES).astype(np.float32)
FREE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def drawn(count: int = 2000, **changes: float) -> Counter[int]:
    chooser = Chooser(Sampling(**{**FREE, **changes}), [])
    return Counter(chooser.choose(LOGITS) for _ in range(count))


def test_zero_temperature_takes_the_most_likely() -> None:
    assert Chooser(Sampling(), []).choose(LOGITS[::-1]) == 4


def test_draws_follow_the_distribution() -> None:
    found = drawn()
    for token, probability in enumerate(PROBABILITIES):
        deviation = np.sqrt(2000 * probability * (1 - probability))
        assert abs(found[token] - 2000 * probability) < 5 * deviation, (token, found)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 9}, {0, 1, 2, 3, 4}),
        # The token that reaches the sum is still in.
        ({"top_p": 0.5}, {0, 1}),
        ({"top_p": 0.0}, {0}),
        ({"min_p": 0.4}, {0, 1, 2}),
        ({"top_k": 3, "min_p": 0.6}, {0, 1}),
    ],
)
def test_filters_leave_the_most_likely(changes: dict[str, float], left: set[int]) -> None:
    assert set(drawn(**changes)) == left


def test_a_high_temperature_flattens_and_a_low_one_sharpens() -> None:
    assert drawn(temperature=0.2)[0] > 1400
    assert drawn(temperature=5.0)[4] > 200


def test_a_penalty_counts_for_prompt_and_answer() -> None:
    chooser = Chooser(Sampling(repetition_penalty=2.0), [0])
    assert [chooser.choose(LOGITS) for _ in range(3)] == [1, 2, 0]
    assert np.array_equal(LOGITS, np.log(PROBABILITIES).astype(np.float32))


def test_a_seed_repeats_its_draws() -> None:
    choosers = [Chooser(Sampling(**FREE, seed=seed), []) for seed in (7, 7, 8)]
    first, again, other = ([chooser.choose(LOGITS) for _ in range(50)] for chooser in choosers)
    assert first == again != other


@pytest.mark.parametrize("wrong", [{"temperature": -1.0}, {"repetition_penalty": 0.0}])
def test_what_no_chain_can_do(wrong: dict[str, float]) -> None:
    with pytest.raises(EngineError, match=r"temperature >= 0 and repetition_penalty > 0"):
        Chooser(Sampling(**wrong), [])
