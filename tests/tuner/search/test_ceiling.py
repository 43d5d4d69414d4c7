"""The ceiling has two terms and is never beaten by what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.search.ceiling import Decode, ceiling


def test_both_terms_are_found_where_the_variants_obey_them():
    variants = [Decode(size, 3.0 + size / 50e6) for size in (80_000_000, 140_000_000, 270_000_000)]
    found = ceiling(variants[0], variants, 50.0)
    assert found.fixed_ms == pytest.approx(3.0)
    assert found.itl_ms == pytest.approx(variants[0].itl_ms)
    assert found.reached == pytest.approx(1.0)


def test_a_slow_variant_is_shown_to_be_below_the_ceiling():
    good, slow = Decode(100_000_000, 3.0 + 2.0), Decode(100_000_000, 10.0)
    assert ceiling(slow, [good], 50.0).reached == pytest.approx(0.5)


decodes = st.builds(Decode, st.integers(1_000_000, 10**10), st.floats(0.1, 1000))


@given(best=decodes, others=st.lists(decodes), gbps=st.floats(0.5, 500))
def test_no_measured_variant_is_faster_than_its_ceiling(best, others, gbps):
    for one in (best, *others):
        found = ceiling(one, [best, *others], gbps)
        assert 0 <= found.reached <= 1 + 1e-9
        assert found.fixed_ms >= -1e-9
