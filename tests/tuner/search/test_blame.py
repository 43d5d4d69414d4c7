"""A value that never works is left alone; one that others share with success is not blamed."""

from tuner.search.blame import Blame


def test_a_value_that_always_fails_is_ruled_out_after_three(space):
    blame = Blame()
    blame.worked(space.make("simulated", "q8_0", {"flash_attn": "off"}))
    for threads in (1, 2, 3):
        candidate = space.make("simulated", "q8_0", {"flash_attn": "on", "n_threads": threads})
        assert not blame.rules_out(candidate)
        blame.failed(candidate)
    assert blame.rules_out(space.make("simulated", "bf16", {"flash_attn": "on", "n_threads": 4}))
    assert not blame.rules_out(space.make("simulated", "bf16", {"flash_attn": "off", "n_threads": 4}))


def test_a_failed_configuration_is_not_tried_again(space):
    blame = Blame()
    config = space.default("simulated")
    blame.failed(config)
    assert blame.rules_out(config)


def test_nothing_is_guilty_while_nothing_ever_worked(space):
    blame = Blame()
    for threads in (1, 2, 3, 4):
        blame.failed(space.make("simulated", "source", {"n_threads": threads}))
    assert not blame.rules_out(space.make("simulated", "source", {"n_threads": 1, "flash_attn": "on"}))


def test_a_forgiven_configuration_may_be_tried_once_more(space):
    blame = Blame()
    config = space.default("simulated")
    blame.failed(config)
    blame.forgive(config)
    assert not blame.rules_out(config)
    blame.failed(config)
    assert blame.rules_out(config)
