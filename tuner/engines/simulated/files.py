"""Files of the simulated engine: a first line of JSON that names the variant; any other file is a source."""

from __future__ import annotations

import json
from pathlib import Path

from tuner.engines.base import SOURCE

FORMAT = "simulated"
BITS = {"f16": 16.0, "bf16": 16.0, "q8_0": 8.5, "q4_0": 4.5}
_BYTES_PER_BIT = 1024
_FIRST_LINE_BYTES = 4096


def write(target: Path, variant: str) -> None:
    """Make a file of a variant; its size follows the variant's bits per weight."""
    head = json.dumps({"format": FORMAT, "variant": variant, "bits_per_weight": BITS[variant]})
    target.write_bytes(head.encode() + b"\n" + bytes(int(BITS[variant] * _BYTES_PER_BIT)))


def variant_of(path: Path) -> str:
    """The variant that a file holds. Raises OSError when it can't be read."""
    with path.open("rb") as file:
        line = file.readline(_FIRST_LINE_BYTES)
    try:
        head = json.loads(line)
    except ValueError:
        return SOURCE
    named = head.get("variant") if isinstance(head, dict) and head.get("format") == FORMAT else None
    return str(named) if named in BITS else SOURCE
