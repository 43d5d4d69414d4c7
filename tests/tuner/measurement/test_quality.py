"""Judging per-position agreement, with values worked out by hand."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import pytest

from profiles.vocabulary import QUALITY_LEVELS, Quality, TrialStatus
from tuner.errors import WorkerError
from tuner.measurement import quality

# A change of what is scored makes old qualities incomparable: raise TEXT_VERSION, then note the new digest.
PINNED = {1: "9b7fca5ecee888e0"}


def agreement(count=640, **columns):
    return {
        "kl": [0.01] * count,
        "top1": [True] * count,
        "margin": [0.5] * count,
        "logprob_difference": [0.0] * count,
        **columns,
    }


def test_perfect_agreement():
    found = quality.summarise_quality(agreement(kl=[0.0] * 640))
    assert found == Quality(0.0, 0.0, 1.0, 1.0, 1.0, 640)
    assert found.meets(QUALITY_LEVELS["near-lossless"])


def test_bounds_lie_on_the_careful_side():
    kl = [0.02 * (i % 128 < 64) for i in range(640)]
    top1 = [i % 20 != 0 or i > 300 for i in range(640)]
    found = quality.summarise_quality(agreement(kl=kl, top1=top1))
    assert found.kl_divergence == pytest.approx(0.01)
    assert found.kl_divergence_high > found.kl_divergence
    assert found.top1_agreement_low < found.top1_agreement == pytest.approx(sum(top1) / 640)


def test_top1_counts_only_where_the_reference_is_sure():
    margin = [0.05 if i % 2 else 0.1 for i in range(640)]
    top1 = [i % 2 == 0 for i in range(640)]
    assert quality.summarise_quality(agreement(margin=margin, top1=top1)).top1_agreement == 1.0


def test_perplexity_ratio_is_above_one_for_a_worse_candidate():
    found = quality.summarise_quality(agreement(logprob_difference=[-math.log(1.1)] * 640))
    assert found.perplexity_ratio == pytest.approx(1.1)


@pytest.mark.parametrize("column", ["kl", "logprob_difference"])
def test_s07_a_quality_that_is_no_number_is_invalid(column):
    with pytest.raises(WorkerError, match="not a number") as caught:
        quality.summarise_quality(agreement(**{column: [0.0] * 639 + [math.nan]}))
    assert caught.value.status is TrialStatus.INVALID


def test_too_few_clear_positions_are_invalid():
    with pytest.raises(WorkerError, match="from 63 positions with a clear answer: needs 64"):
        quality.summarise_quality(agreement(margin=[0.5] * 63 + [0.0] * 577))


def test_e20_a_quarter_of_changed_top_tokens_is_infeasible_whatever_its_speed():
    found = quality.summarise_quality(agreement(top1=[i % 4 != 0 for i in range(640)]))
    assert not found.meets(QUALITY_LEVELS["balanced"])
    assert found.meets(QUALITY_LEVELS["any"])


def test_a_stored_reference_is_not_made_again(tmp_path):
    asked = []

    def ask_reference(op, payload):
        asked.append((op, payload["positions"]))
        (tmp_path / "cache" / "r.npz").touch()
        return {}

    def ask_candidate(op, payload):
        asked.append((op, payload["reference"]))
        return agreement()

    path = tmp_path / "cache" / "r.npz"
    for _ in range(2):
        assert quality.judge(ask_reference, ask_candidate, path).positions == 640
    compared = ("score_compare", str(path))
    assert asked == [("score_reference", quality.POSITIONS), compared, compared]


def test_keys_tell_what_decides_a_quality():
    base = quality.quality_key("e", "b", "v", {"type_k": "f16", "type_v": "f16"})
    assert base == quality.quality_key("e", "b", "v", {"type_v": "f16", "type_k": "f16"})
    others = {
        quality.quality_key("f", "b", "v", {"type_k": "f16", "type_v": "f16"}),
        quality.quality_key("e", "c", "v", {"type_k": "f16", "type_v": "f16"}),
        quality.quality_key("e", "b", "w", {"type_k": "f16", "type_v": "f16"}),
        quality.quality_key("e", "b", "v", {"type_k": "q8_0", "type_v": "f16"}),
        quality.quality_key("e", "b", "v"),
    }
    assert base not in others
    assert len(others) == 5


def test_packaged_texts_suffice_for_all_positions():
    texts = quality.packaged_texts()
    # No known tokenizer takes more than 2.5 Chinese or 7 other characters a token.
    longest = quality.POSITIONS / len(texts)
    assert [len(text) / per >= longest for text, per in zip(texts, (7, 2.5, 7), strict=True)] == [True] * 3


def test_texts_do_not_change_without_a_new_version():
    request = {**quality.reference_request(Path("x")), "path": ""}
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]
    assert PINNED[quality.TEXT_VERSION] == digest
