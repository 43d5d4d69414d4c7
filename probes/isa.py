"""Reads the instruction sets that the operating system lets programs use."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from probes.cpuinfo import CpuInfo
from probes.record import Record
from probes.sysfs import Sysfs

__all__ = ["InferenceIsa", "read_features", "relevant_features", "summarize_isa"]


@dataclass(frozen=True)
class _Family:
    """What counts on one architecture, best first; the same name means other things on others (sme, msa)."""

    vector: tuple[str, ...]
    int8_dot: tuple[str, ...] = ()
    bf16: tuple[str, ...] = ()
    fp16: tuple[str, ...] = ()
    matrix: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def relevant(self) -> frozenset[str]:
        """All names of this architecture that decide the speed of quantized inference."""
        return frozenset((*self.vector, *self.int8_dot, *self.bf16, *self.fp16, *self.matrix, *self.others))


_FAMILIES = {
    ("x86", "i686", "i586", "i386"): _Family(
        vector=("avx512f", "avx2", "avx", "sse4_2", "ssse3", "sse2"),
        int8_dot=("avx512_vnni", "avx_vnni_int8", "avx_vnni"),
        bf16=("avx512_bf16", "avx_ne_convert"),
        fp16=("avx512_fp16", "f16c"),
        matrix=("amx_int8", "amx_bf16", "amx_tile"),
        others=("fma", "bmi2", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx512vbmi", "amx_fp16"),
    ),
    ("aarch64", "arm"): _Family(
        vector=("sve2", "sve", "asimd", "neon"),
        int8_dot=("i8mm", "svei8mm", "asimddp"),
        bf16=("bf16", "svebf16"),
        fp16=("asimdhp", "fphp", "vfpv4"),
        matrix=("sme2", "sme", "i8mm"),
        others=("smei8i32", "smeb16f32"),
    ),
    ("riscv",): _Family(
        vector=("v", "zve64d", "zve32f"),
        bf16=("zvfbfwma", "zvfbfmin"),
        fp16=("zvfh", "zvfhmin"),
        others=("zvl128b", "zvl256b", "zvl512b", "zba", "zbb"),
    ),
    ("ppc", "powerpc"): _Family(vector=("vsx", "altivec"), matrix=("mma",), others=("arch_3_00", "arch_3_1")),
    ("s390",): _Family(vector=("vxe3", "vxe2", "vxe", "vx"), matrix=("nnpa",)),
    ("loongarch",): _Family(vector=("lasx", "lsx")),
    ("mips",): _Family(vector=("msa",)),
}
_BITS = {"avx512f": 512, "avx2": 256, "avx": 256, "lasx": 256}
_SCALABLE = frozenset({"sve", "sve2", "v", "zve64d", "zve32f"})
_HWCAP, _HWCAP2 = 16, 26
_POWER_BITS = (
    (_HWCAP, 0x10000000, "altivec"),
    (_HWCAP, 0x00000080, "vsx"),
    (_HWCAP2, 0x00800000, "arch_3_00"),
    (_HWCAP2, 0x00040000, "arch_3_1"),
    (_HWCAP2, 0x00020000, "mma"),
)


@dataclass(frozen=True)
class InferenceIsa:
    """What matters for quantized inference: the best usable instruction set of each class, None if none is.

    `vector_bits` is None where the width is not fixed by the instruction set (SVE, RISC-V V).
    """

    vector: str | None = None
    vector_bits: int | None = None
    int8_dot: str | None = None
    bf16: str | None = None
    fp16: str | None = None
    matrix: str | None = None

    def to_json(self) -> dict[str, object]:
        """The summary as the probe's JSON shows it."""
        return {
            "vector": self.vector,
            "vector_bits": self.vector_bits,
            "int8_dot": self.int8_dot,
            "bf16": self.bf16,
            "fp16": self.fp16,
            "matrix": self.matrix,
        }

    @classmethod
    def from_record(cls, record: Record) -> InferenceIsa:
        """The summary of such a JSON object."""
        return cls(
            vector=record.text("vector"),
            vector_bits=record.integer("vector_bits"),
            int8_dot=record.text("int8_dot"),
            bf16=record.text("bf16"),
            fp16=record.text("fp16"),
            matrix=record.text("matrix"),
        )


def read_features(
    sysfs: Sysfs, cpuinfo: CpuInfo, arch: str | None, note: Callable[[str], None]
) -> tuple[str, ...]:
    """The lower-case names, sorted, that every listed CPU has; never inferred from the model's name."""
    features: set[str] = set()
    for key in ("flags", "features", "ases implemented"):
        told = set(cpuinfo.by_cpu(key).values()) or {cpuinfo.common.get(key, "")}
        sets = [frozenset(text.lower().split()) for text in told]
        features |= frozenset.intersection(*sets)
        if len(sets) > 1 and len(set(sets)) > 1:
            note("CPUs differ in their instruction sets; only the common ones are reported")
    isas = set(cpuinfo.by_cpu("isa").values())
    if isas:
        features |= frozenset.intersection(*(frozenset(_isa_names(text)) for text in isas))
    if arch is not None and arch.startswith("ppc"):
        features |= _power_features(sysfs, cpuinfo, arch)
    if not features:
        note("instruction sets unknown: no source lists them")
    return tuple(sorted(features))


def relevant_features(features: Iterable[str], arch: str | None) -> tuple[str, ...]:
    """The part that decides the speed of quantized inference, sorted; other names come with newer kernels."""
    return tuple(sorted(_family(arch).relevant.intersection(features)))


def summarize_isa(features: Iterable[str], arch: str | None) -> InferenceIsa:
    """The best of each class that `features` have on this architecture."""
    have = frozenset(features)
    family = _family(arch)

    def best(names: tuple[str, ...]) -> str | None:
        return next((name for name in names if name in have), None)

    vector = best(family.vector)
    return InferenceIsa(
        vector=vector,
        vector_bits=None if vector is None or vector in _SCALABLE else _BITS.get(vector, 128),
        int8_dot=best(family.int8_dot),
        bf16=best(family.bf16),
        fp16=best(family.fp16),
        matrix=best(family.matrix),
    )


def _family(arch: str | None) -> _Family:
    for stems, family in _FAMILIES.items():
        if (arch or "").startswith(stems):
            return family
    return _Family(vector=())


def _isa_names(text: str) -> list[str]:
    """The extensions of a RISC-V string such as `rv64imafdcv_zba_zvfh`; other architectures list words."""
    match = re.match(r"(rv\d{2,3})([a-wy]*)((?:[_sxz].*)?)\Z", text.strip().lower())
    if match is None:
        return text.lower().split()
    singles = match[2].replace("g", "imafd")
    general = ["zicsr", "zifencei"] if "g" in match[2] else []
    return [match[1], *singles, *general, *(name for name in re.split(r"[_\s]+", match[3]) if name)]


def _power_features(sysfs: Sysfs, cpuinfo: CpuInfo, arch: str) -> set[str]:
    """POWER prints no feature line: the kernel tells a process by its auxiliary vector."""
    found = {"altivec"} if "altivec supported" in (cpuinfo.first("cpu") or "") else set()
    raw = sysfs.raw("proc/self/auxv") or b""
    layout = ("<" if arch.endswith("le") else ">") + "QQ"
    usable = len(raw) - len(raw) % 16
    vector = dict(struct.iter_unpack(layout, raw[:usable]))
    found.update(name for entry, bit, name in _POWER_BITS if vector.get(entry, 0) & bit)
    return found
