"""Mutated GGUF headers, and what must hold for every one of them."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tuner.engines.llama_cpp.smoke import tiny_model
from tuner.errors import ModelFileError
from tuner.models.inspect import inspect

DEADLINE_S = 1.0
"""Ten times the 100 ms that a header may take: beside a busy neighbour it still tells a hang from a pause."""

_ODD_NUMBERS = (0, 1, 2, 7, 31, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1,
                2**63, 2**64 - 32, 2**64 - 1)  # fmt: skip
_UNEXPECTED = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError,
    MemoryError, RecursionError, OSError, struct.error,
)  # fmt: skip
"""What careless reading of a hostile file ends in; it is what is looked for, and must not end the run."""

_FRAGMENTS = (
    b"GGUF", b"FUGG", b"\x00\x00\x00\x03", b"llama.block_count", b"general.alignment", b"split.count",
    b"general.architecture", b"\xff" * 16, b"\x00" * 64, "ü€".encode(), b"\xed\xa0\x80",
)  # fmt: skip


@dataclass
class Findings:
    """What came out of many files: outcomes by their kind, the slowest file, what must not have happened."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: bytes = b""
    faults: list[tuple[str, bytes]] = field(default_factory=list)


def seeds() -> list[bytes]:
    """Valid files: a whole model, and headers with every type of value."""
    return [tiny_model(), _header(every_type=False), _header(every_type=True)]


def mutated(rng: random.Random, seeds: list[bytes]) -> bytes:
    """One to six edits of one of the seeds, most of them in the first bytes, where counts and lengths are."""
    data = bytearray(rng.choice(seeds)[:4096])
    for _ in range(rng.randint(1, 6)):
        at = int(len(data) * rng.random() ** 2)
        edit = rng.randrange(7)
        if edit == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif edit == 1:
            number = rng.choice(_ODD_NUMBERS) + rng.randint(-1, 1)
            form, mask = rng.choice((("<I", 2**32 - 1), ("<Q", 2**64 - 1)))
            piece = struct.pack(form, number & mask)
            data[at : at + len(piece)] = piece
        elif edit == 2:
            del data[at:]
        elif edit == 3:
            del data[at : at + rng.randint(1, 16)]
        elif edit == 4:
            data[at:at] = rng.choice(_FRAGMENTS)
        elif edit == 5:
            data[at:at] = data[at : at + rng.randint(1, 200)]
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 40))
    if rng.random() < 0.3:
        # A file as large as its tensors say, so that more than the extent is looked at.
        data += bytes(1 << 17)
    return bytes(data)


def examine(path: Path, data: bytes, findings: Findings) -> None:
    """Write the file and inspect it: it is described or refused in one line, soon."""
    path.write_bytes(data)
    began = time.perf_counter()
    try:
        inspect([path], name="fuzz")
        outcome = "described"
    except ModelFileError as error:
        outcome = _kind(str(error), path)
        if "\n" in str(error) or str(path) not in str(error):
            findings.faults.append((f"a message of another form: {error!r}", data))
    except _UNEXPECTED as error:
        outcome = type(error).__name__
        findings.faults.append((f"{type(error).__name__}: {error}", data))
    took_s = time.perf_counter() - began
    findings.outcomes[outcome] += 1
    if took_s > findings.slowest_s:
        findings.slowest_s, findings.slowest = took_s, data
    if took_s > DEADLINE_S:
        findings.faults.append((f"{took_s:.2f} s", data))


def run(folder: Path, *, count: int, seed: int, for_s: float = float("inf")) -> Findings:
    """Examine `count` files, or as many as `for_s` seconds allow."""
    findings, rng, valid = Findings(), random.Random(seed), seeds()
    path = folder / "fuzz.gguf"
    until = time.monotonic() + for_s
    for _ in range(count):
        if time.monotonic() > until:
            break
        examine(path, mutated(rng, valid), findings)
    path.unlink(missing_ok=True)
    return findings


def resident_mib() -> float:
    """Resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _kind(message: str, path: Path) -> str:
    """A message without its numbers and names."""
    words = message.replace(str(path), "").split()
    return " ".join(word for word in words[:5] if word.isalpha())


def _header(*, every_type: bool) -> bytes:
    pairs = [_pair(b"general.architecture", 8, _text(b"llama"))]
    for name, value in ((b"block_count", 1), (b"embedding_length", 64), (b"attention.head_count", 2)):
        pairs.append(_pair(b"llama." + name, 4, struct.pack("<I", value)))
    if every_type:
        pairs += list(_every_type())
    tensors = [
        _text(f"blk.0.t{index}.weight".encode()) + struct.pack("<IQQIQ", 2, 64, 4, kind, 4096 * index)
        for index, kind in enumerate((0, 1, 2, 8))
    ]
    counts = struct.pack("<IQQ", 3, len(tensors), len(pairs))
    return b"GGUF" + counts + b"".join([*pairs, *tensors]) + bytes(4096 * 5)


def _every_type() -> Iterator[bytes]:
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    for kind, size in sizes.items():
        yield _pair(f"a.{kind}".encode(), kind, bytes(size))
        yield _pair(f"b.{kind}".encode(), 9, struct.pack("<IQ", kind, 3) + bytes(3 * size))
    texts = b"".join(_text(f"token{index}".encode()) for index in range(20))
    yield _pair(b"tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 20) + texts)


def _pair(name: bytes, kind: int, value: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + value


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value
