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


def test_a_pair_of_values_is_ruled_out_and_each_of_them_alone_is_not(space):
    blame = Blame()

    def config(flash, kind, threads):
        settings = {"flash_attn": flash, "type_k": kind, "n_threads": threads}
        return space.make("simulated", "q8_0", settings)

    for threads in (1, 2, 3, 4):
        blame.worked(config("off", "q8_0", threads))
        blame.worked(config("on", "f16", threads))
    for threads in (1, 2, 3):
        assert not blame.rules_out(config("on", "q8_0", threads))
        blame.failed(config("on", "q8_0", threads))
    assert blame.rules_out(config("on", "q8_0", 4))
    assert not blame.rules_out(config("on", "q4_0", 4))
    assert not blame.rules_out(config("off", "q8_0", 4))


def test_two_causes_are_told_apart(space):
    blame = Blame()
    for flash in ("off", "on"):
        blame.worked(space.make("simulated", "q8_0", {"flash_attn": flash, "n_ubatch": 64}))
    broken = [{"repack": False}, {"wait_policy": "passive"}]
    for threads in (1, 2, 3):
        for changes in broken:
            blame.failed(space.make("simulated", "q4_0", {"n_threads": threads, **changes}))
        blame.worked(space.make("simulated", "q4_0", {"n_threads": threads}))
    for changes in broken:
        assert blame.rules_out(space.make("simulated", "q4_0", {"n_threads": 4, **changes}))
    assert not blame.rules_out(space.make("simulated", "q4_0", {"n_threads": 4}))


def test_a_suspect_that_works_is_cleared(space):
    blame = Blame()
    blame.worked(space.default("simulated"))
    for threads in (1, 2, 3):
        blame.failed(space.make("simulated", "q4_0", {"n_threads": threads, "wait_policy": "passive"}))
    both = space.make("simulated", "q4_0", {"n_threads": 4})
    assert blame.rules_out(both)
    blame.worked(both)
    assert not blame.rules_out(space.make("simulated", "q4_0", {"n_threads": 4, "flash_attn": "on"}))
    assert blame.rules_out(space.make("simulated", "q8_0", {"n_threads": 4, "wait_policy": "passive"}))
