"""Choosing: the best profile, the Pareto front."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_examples import PROFILE

from profiles.records import Profile, ProfileRecord, ProfileStatus
from profiles.select import best, pareto_front
from profiles.vocabulary import Objective

VECTORS = st.lists(st.tuples(*[st.integers(0, 4).map(float) | st.just(math.nan)] * 2), max_size=12)


def record(age: int, response_ms: float = 800.0, lineage: str = "a", **changes: object) -> ProfileRecord:
    """A profile published `age` minutes ago."""
    profile = replace(PROFILE, metrics={**PROFILE.metrics, "response_ms.p50": response_ms}, **changes)
    return ProfileRecord(
        **{name: getattr(profile, name) for name in Profile.__dataclass_fields__},
        id=f"p-{age}",
        lineage=lineage,
        created_at=datetime(2026, 1, 1, tzinfo=UTC) - timedelta(minutes=age),
    )


def test_nothing_is_best_of_nothing() -> None:
    assert best([]) is None


def test_within_a_lineage_the_newest_speaks() -> None:
    assert best([record(1, 900.0), record(2, 800.0)]) == record(1, 900.0)


def test_between_lineages_the_better_objective_wins() -> None:
    assert best([record(1, 900.0), record(2, 800.0, "b")]) == record(2, 800.0, "b")
    rate = {"objectives": (Objective("response_ms", "maximize"),)}
    assert best([record(2, 900.0, **rate), record(1, 800.0, "b", **rate)]) == record(2, 900.0, **rate)


def test_the_newer_wins_a_tie() -> None:
    assert best([record(2, lineage="b"), record(1), record(3, lineage="c")]) == record(1)


def test_confirmed_wins_over_a_better_and_newer_provisional() -> None:
    provisional = record(1, 1.0, status=ProfileStatus.PROVISIONAL)
    assert best([provisional, record(2)]) == record(2)
    assert best([provisional]) == provisional


def test_preferred_conditions_win_over_confirmed() -> None:
    quiet = record(1, status=ProfileStatus.PROVISIONAL)
    loaded = record(2, conditions="loaded")
    assert best([quiet, loaded]) == quiet
    assert best([quiet, loaded], prefer="loaded") == loaded
    assert best([loaded]) == loaded


def test_an_invalidated_newest_gives_the_word_back() -> None:
    assert best([replace(record(1), invalidated="wrong"), record(2)]) == record(2)


@given(VECTORS)
@settings(deadline=None)
def test_the_front_is_what_nothing_beats(vectors: list[tuple[float, float]]) -> None:
    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] <= b[0] and a[1] >= b[1] and a != b

    finite = [v for v in vectors if not any(map(math.isnan, v))]
    expected = [
        i for i, v in enumerate(vectors) if v in finite and not any(beats(other, v) for other in finite)
    ]
    assert list(pareto_front(vectors, ["minimize", "maximize"])) == expected


def test_a_vector_of_another_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="shorter"):
        pareto_front([(1.0,)], ["minimize", "maximize"])
