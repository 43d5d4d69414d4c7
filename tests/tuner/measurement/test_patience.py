"""How long a round may take, from what the rounds before it took."""

import pytest

from profiles.vocabulary import Config
from tuner.engines.base import BOTH_PHASES, Phase
from tuner.measurement.isolation import Deadlines
from tuner.measurement.patience import HOPELESS, SLOWEST, Patience

DEADLINES = Deadlines(run_s=300.0, least_run_s=10.0, hopeless_s=3.0)
KNOWN, NEW = (Config.of("simulated", "source", {"n_threads": n}) for n in (1, 2))
OTHER = Config.of("another", "source", {})
PREFILL = frozenset({Phase.PREFILL})


@pytest.fixture
def patience() -> Patience:
    patience = Patience(DEADLINES)
    patience.took(KNOWN, "short", BOTH_PHASES, 2.0)
    return patience


def test_nothing_known_is_given_all_there_is() -> None:
    assert Patience(DEADLINES).limit_s(KNOWN, "short", BOTH_PHASES) == 300.0


def test_what_has_answered_may_take_long_again(patience: Patience) -> None:
    assert patience.limit_s(KNOWN, "short", BOTH_PHASES) == SLOWEST * 2.0


@pytest.mark.parametrize("phases", [BOTH_PHASES, PREFILL])
def test_a_new_configuration_is_ended_where_it_is_hopeless(
    patience: Patience, phases: frozenset[Phase]
) -> None:
    assert patience.limit_s(NEW, "short", phases) == HOPELESS * 2.0


def test_the_fastest_counts_and_no_round_is_given_less_than_a_moment(patience: Patience) -> None:
    patience.took(KNOWN, "short", BOTH_PHASES, 0.1)
    assert patience.limit_s(NEW, "short", BOTH_PHASES) == DEADLINES.hopeless_s
    assert patience.limit_s(KNOWN, "short", BOTH_PHASES) == SLOWEST * 2.0


def test_another_engine_or_a_whole_workload_is_not_hopeless(patience: Patience) -> None:
    patience.took(KNOWN, "full", BOTH_PHASES, 4.0)
    assert patience.limit_s(NEW, "full", BOTH_PHASES) == SLOWEST * 4.0
    assert patience.limit_s(OTHER, "short", BOTH_PHASES) == SLOWEST * 2.0
