"""How far a configuration's answers are from the user's file: asked of workers, judged here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from profiles.vocabulary import Quality, Setting, TrialStatus
from tuner.errors import WorkerError
from tuner.measurement.statistics import block_bootstrap

TEXT_VERSION = 1
"""Raised with any change of texts, prompts or lengths: qualities of other versions do not compare."""
TEXTS = ("english.txt", "chinese.txt", "code.txt")
CHAT_PROMPTS = (
    "Explain step by step how bread is made, from flour to the finished loaf.",
    "Write a short story about a lighthouse keeper and a storm.",
    "Write a Python function that returns the prime numbers below n, and explain each line.",
    "用中文介绍一下长江的地理和历史。",
)
POSITIONS = 768
REPLY_TOKENS = 48
BLOCK = 64
LEAST_MARGIN = 0.1
"""Top-1 counts where the reference's two best probabilities are this far apart; elsewhere it is a coin."""

Ask = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""One operation of a scorer's worker: name and payload to result; raises WorkerError."""


def judge(ask_reference: Ask, ask_candidate: Ask, reference: Path) -> Quality:
    """The candidate's quality against the reference stored at `reference`, which is made if it is missing.

    `ask_reference` is called only then, so that a cached reference starts no worker.
    """
    if not reference.exists():
        reference.parent.mkdir(parents=True, exist_ok=True)
        ask_reference("score_reference", reference_request(reference))
    return summarise_quality(ask_candidate("score_compare", {"reference": str(reference)}))


def reference_request(reference: Path) -> dict[str, object]:
    """The payload of `score_reference` for the packaged texts."""
    return {
        "texts": packaged_texts(),
        "chat_prompts": list(CHAT_PROMPTS),
        "positions": POSITIONS,
        "reply_tokens": REPLY_TOKENS,
        "path": str(reference),
    }


def packaged_texts() -> list[str]:
    """English, Chinese and code, written for this purpose."""
    folder = files("tuner.measurement") / "texts"
    return [(folder / name).read_text(encoding="utf-8") for name in TEXTS]


def quality_key(
    engine: str, build: str, variant_digest: str, settings: Mapping[str, Setting] | None = None
) -> str:
    """A short digest of all that decides a quality, or names a reference's file: equal for equal ones.

    `settings` are those that affect quality (`Dimension.affects_quality`).
    """
    text = json.dumps([TEXT_VERSION, engine, build, variant_digest, sorted((settings or {}).items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def summarise_quality(per_position: Mapping[str, Sequence[Any]]) -> Quality:
    """Means with 95 % block-bootstrap bounds (blocks of 64 positions) of what `score_compare` returns.

    top1_agreement is over the positions where the reference's margin is at least 0.1. perplexity_ratio is
    exp(-mean(logprob_difference)), the candidate's over the reference's. Raises WorkerError (invalid) for
    values that are not numbers or too few positions to judge.
    """
    kl = [float(value) for value in per_position["kl"]]
    sure = [
        float(equal)
        for equal, margin in zip(per_position["top1"], per_position["margin"], strict=True)
        if margin >= LEAST_MARGIN
    ]
    differences = [float(value) for value in per_position["logprob_difference"]]
    if len(sure) < BLOCK:
        raise WorkerError(
            TrialStatus.INVALID, f"quality from {len(sure)} positions with a clear answer: needs {BLOCK}"
        )
    if not all(map(math.isfinite, (*kl, *differences))):
        raise WorkerError(TrialStatus.INVALID, "quality is not a number at some position")
    divergence = block_bootstrap(kl, BLOCK)
    agreement = block_bootstrap(sure, BLOCK)
    return Quality(
        kl_divergence=divergence.estimate,
        kl_divergence_high=divergence.high,
        top1_agreement=agreement.estimate,
        top1_agreement_low=agreement.low,
        perplexity_ratio=math.exp(-sum(differences) / len(differences)),
        positions=len(kl),
    )
