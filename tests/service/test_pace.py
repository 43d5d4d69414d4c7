"""The batch is capped where more sequences get fewer tokens per second together."""

from service.generator.pace import FEWEST, KNOWN_FOR_NS, Pace

MS = 1_000_000


def fed(pace: Pace, sequences: int, step_ms: float, now_ns: int = 0, steps: int = FEWEST) -> Pace:
    for _ in range(steps):
        pace.saw(sequences, int(step_ms * MS), now_ns)
    return pace


def test_without_measured_steps_all_places_are_used():
    assert Pace(8).places(0) == 8
    assert fed(Pace(8), 8, 1000.0, steps=FEWEST - 1).places(0) == 8


def test_a_batch_that_pays_is_not_capped():
    pace = fed(fed(fed(Pace(8), 1, 6.0), 4, 16.0), 8, 24.0)
    assert pace.places(0) == 8


def test_a_batch_that_does_not_pay_is_capped_at_the_best_size():
    pace = fed(fed(fed(Pace(8), 1, 6.0), 4, 16.0), 8, 60.0)
    assert pace.places(0) == 4


def test_a_loss_that_is_small_is_taken_for_everybody_s_sake():
    pace = fed(fed(Pace(8), 1, 10.0), 2, 24.0)
    assert pace.places(0) == 8


def test_after_a_while_the_larger_batch_is_tried_again():
    pace = fed(fed(Pace(8), 4, 16.0), 8, 60.0)
    assert pace.places(0) == 4
    assert pace.places(KNOWN_FOR_NS + 1) == 8


def test_one_slow_step_caps_nothing():
    pace = fed(fed(Pace(8), 1, 10.0), 8, 30.0)
    pace.saw(8, 5000 * MS, 0)
    assert pace.places(0) == 8
