"""The space is finite, canonical, and knows what a setting can change."""

import random
from dataclasses import replace

from profiles.vocabulary import WORKLOADS, Role, Workload
from tests.support.surface import space_of
from tuner.engines.base import Dimension, Phase, Scope


def test_every_configuration_is_canonical_and_listed_once(space):
    everything = space.everything()
    assert len({config.key for config in everything}) == len(everything)
    assert all(space.canonical(config) == config for config in everything)
    assert len(everything) < space.combinations


def test_a_drawn_configuration_is_a_listed_one(space):
    listed = {config.key for config in space.everything()}
    rng = random.Random(1)
    drawn = [space.draw(rng) for _ in range(200)]
    assert {config.key for config in drawn if config is not None} <= listed
    assert len({config.key for config in drawn if config is not None}) > 50


def test_a_combination_that_cannot_run_is_no_configuration(space):
    assert space.make("simulated", "q8_0", {"type_v": "q8_0", "flash_attn": "off"}) is None
    assert space.make("simulated", "q8_0", {"type_v": "q8_0", "flash_attn": "on"}) is not None


def test_the_phase_part_drops_the_other_phases_settings(space):
    one = space.make("simulated", "q8_0", {"n_threads": 1})
    two = one.with_settings(n_threads=2)
    assert space.phase_part(one, Phase.PREFILL) == space.phase_part(two, Phase.PREFILL)
    assert space.phase_part(one, Phase.DECODE) != space.phase_part(two, Phase.DECODE)
    assert space.shared_part(one) == space.shared_part(two)


def test_with_several_streams_every_configuration_stands_for_itself(machine):
    batch = space_of(machine, WORKLOADS["batch"])
    one = batch.make("simulated", "q8_0", {"n_threads_batch": 1})
    two = batch.make("simulated", "q8_0", {"n_threads_batch": 2})
    assert batch.phase_part(one, Phase.DECODE) != batch.phase_part(two, Phase.DECODE)


def test_the_switch_is_the_largest_scope_that_changed(space):
    base = space.make("simulated", "q8_0", {})
    assert space.switch(None, base) is Scope.PROCESS
    assert space.switch(base, base) is None
    assert space.switch(base, base.with_settings(n_threads=3)) is Scope.RUN
    assert space.switch(base, base.with_settings(n_threads=3, flash_attn="on")) is Scope.CONTEXT
    assert space.switch(base, space.make("simulated", "bf16", {})) is Scope.LOAD
    assert space.switch(base, base.with_settings(wait_policy="passive")) is Scope.PROCESS


def test_the_quality_key_keeps_what_changes_the_answer(space):
    config = space.make("simulated", "q8_0", {"type_k": "q8_0", "n_threads": 2})
    assert dict(space.quality_key(config).settings) == {"type_k": "q8_0", "type_v": "f16"}


def test_another_space_has_another_digest(space, machine):
    assert space.digest == space_of(machine, WORKLOADS["chat"]).digest
    assert space.digest != space_of(machine, WORKLOADS["chat"], ("source", "q8_0")).digest
    assert space.digest != space_of(machine, Workload("short", 16, 8)).digest


def test_a_space_too_large_to_list_is_listed_around_the_default_too(machine):
    space = space_of(machine, WORKLOADS["batch"])
    many = Dimension("unheard_of", tuple(range(200)), 0, Scope.CONTEXT, Role.KV)
    (part,) = space.engines
    large = replace(space, engines=(replace(part, dimensions=(*part.dimensions, many)),))
    default = large.default("simulated")
    listed = large.listed(Phase.DECODE, random.Random(0))
    changes = [sum(config.get(name) != value for name, value in default.settings) for config in listed]
    # Drawn from everything alone, three in a thousand would differ in so few.
    assert sum(count <= 3 for count in changes) > 0.1 * len(listed)
