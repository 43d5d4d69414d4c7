"""What a round says of the two phases: times that `objectives.predict` puts together again."""

from __future__ import annotations

import math
from itertools import accumulate
from statistics import median
from typing import NamedTuple

from profiles.vocabulary import RoundSamples, Workload
from tuner.measurement.asked import BATCH_TOKENS


class PhaseTimes(NamedTuple):
    """Milliseconds of prefill and of a decode step; None for a phase that the round did not run."""

    ttft_ms: float | None
    itl_ms: float | None


def phase_times(samples: RoundSamples, workload: Workload) -> PhaseTimes:
    """The median TTFT and gap of a single stream; of several, the shares of the round's time.

    Several streams need not run together: some may wait, and a prompt may enter beside tokens of others. Then
    gaps say how long a step takes, and not how many streams it served. So the decode step here is the time in
    which every stream gets one token, at the rate that is seen when no prompt is left and until the first
    stream ends; what the round took beyond its tokens at that rate is prefill.
    """
    gaps = [gap for stream in samples.gaps_ms for gap in stream]
    if len(samples.gaps_ms) < 2 or not samples.ttft_ms or not gaps:
        return PhaseTimes(
            median(samples.ttft_ms) if samples.ttft_ms else None, median(gaps) if gaps else None
        )
    times = [
        list(accumulate((first, *stream)))
        for first, stream in zip(samples.ttft_ms, samples.gaps_ms, strict=True)
    ]
    last_first = max(samples.ttft_ms)
    ends = [stream[-1] for stream in times if stream[-1] > last_first]
    if not ends:
        return PhaseTimes(median(samples.ttft_ms), median(gaps))
    served = sum(last_first < at <= min(ends) for stream in times for at in stream)
    streams = len(times)
    itl_ms = streams * (min(ends) - last_first) / served
    tokens = max(map(len, times))
    # The first token of all can't come before its prompt was computed.
    prefill_ms = max(max(ends) - (tokens - 1) * itl_ms, min(samples.ttft_ms))
    steps = math.ceil(workload.prompt_tokens * streams / BATCH_TOKENS)
    return PhaseTimes(prefill_ms * (steps + 1) / (2 * steps), itl_ms)
