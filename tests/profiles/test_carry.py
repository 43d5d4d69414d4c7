"""What of a configuration carries over to another machine, by the role of each setting."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.carry import carried_over
from profiles.nearest import Cpus
from profiles.vocabulary import Config, Role, Setting


@dataclass(frozen=True)
class Described:
    name: str
    values: tuple[Setting, ...]
    default: Setting
    role: Role


SETTINGS = (
    Described("n_threads", (1, 2, 4), 2, Role.THREADS),
    Described("n_ubatch", (64, 128, 512), 512, Role.BATCH),
    Described("type_k", ("f16", "q8_0"), "f16", Role.KV),
    Described("repack", (False, True), True, Role.WEIGHTS),
    Described("placement", ("none", "cores"), "none", Role.PLACEMENT),
)
THERE, HERE = Cpus(32, 16), Cpus(8, 4)


def carry(name: str, value: Setting, there: Cpus | None = THERE) -> tuple[Setting | None, tuple[str, ...]]:
    config, changes = carried_over(Config.of("e", "q8_0", {name: value}), SETTINGS, there, HERE)
    assert (config.engine, config.variant) == ("e", "q8_0")
    return config.get(name), changes


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("n_threads", 32, 8),  # all CPUs
        ("n_threads", 16, 4),  # all cores
        ("n_threads", 12, 3),  # a share
        ("n_threads", 1, 1),
        ("n_ubatch", 128, 128),
        ("n_ubatch", 300, 512),
        ("n_ubatch", 16, 64),
        ("type_k", "q8_0", "q8_0"),
        ("type_k", "q4_0", "f16"),
        ("repack", False, False),
        ("placement", "cores", "cores"),
        ("placement", "node3", "none"),
    ],
)
def test_each_role(name: str, value: Setting, wanted: Setting) -> None:
    found, changes = carry(name, value)
    assert found == wanted
    assert bool(changes) == (found != value)
    assert all(name in change and str(value) in change for change in changes)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("n_threads", 32, "one for each CPU"),
        ("n_threads", 16, "one for each core"),
        ("n_threads", 12, "the same share of the CPUs"),
        ("n_threads", 1000, "CPUs here: 8"),
        ("n_ubatch", 300, "the nearest choice here"),
        ("type_k", "q4_0", "q4_0 is no choice here"),
    ],
)
def test_a_change_says_why(name: str, value: Setting, why: str) -> None:
    found, changes = carry(name, value)
    assert changes == (f"{name} {value} -> {found} ({why})",)


def test_a_thread_a_core_stays_that_where_a_core_has_one_cpu() -> None:
    config = Config.of("e", "v", {"n_threads": 16})
    assert carried_over(config, SETTINGS, Cpus(16, 16), HERE)[0].get("n_threads") == 4
    assert carried_over(config, SETTINGS, Cpus(16, None), HERE)[0].get("n_threads") == 8


def test_without_the_other_machines_cpus_threads_are_only_cut() -> None:
    assert carry("n_threads", 6, None) == (6, ())
    assert carry("n_threads", 32, None) == (8, ("n_threads 32 -> 8 (CPUs here: 8)",))


def test_what_is_no_choice_here_is_dropped_and_told() -> None:
    assert carry("swa_full", True) == (None, ("swa_full true is dropped: it is no choice here",))


@given(st.integers(1, 512), st.integers(1, 256), st.integers(1, 256))
def test_threads_are_always_within_the_cpus(count: int, there: int, here: int) -> None:
    config = Config.of("e", "v", {"n_threads": count})
    found = carried_over(config, SETTINGS, Cpus(there), Cpus(here))[0].get("n_threads")
    assert isinstance(found, int)
    assert 1 <= found <= here
