"""Fuzzes the header checks: `python -m tests.fuzz.run [--count 10000] [--seconds S] [--seed N]`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.fuzz.headers import Findings, resident_mib, run


def main() -> int:
    """0 when nothing was found; 1 with each fault and the file that shows it, kept in the current folder."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.run")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), count=200, seed=options.seed)
        before = resident_mib()
        findings = run(Path(folder), count=options.count, seed=options.seed, for_s=options.seconds)
        grown = resident_mib() - before
    report(findings, options.seed, grown)
    for number, (what, data) in enumerate(findings.faults[:10]):
        kept = Path(f"fuzz-{options.seed}-{number}.gguf")
        kept.write_bytes(data)
        sys.stderr.write(f"{what}: {kept}\n")
    return 1 if findings.faults or grown > 16 else 0


def report(findings: Findings, seed: int, grown_mib: float) -> None:
    """How many files came to what end."""
    total = sum(findings.outcomes.values())
    lines = [f"{count:7d} {what}" for what, count in findings.outcomes.most_common()]
    lines.append(
        f"{total} files (seed {seed}), slowest {1000 * findings.slowest_s:.1f} ms,"
        f" memory {grown_mib:+.1f} MiB, {len(findings.faults)} faults"
    )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
