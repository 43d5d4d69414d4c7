"""Names the machine: architecture, vendor, model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from probes.arm_parts import IMPLEMENTERS, PARTS
from probes.cpuinfo import CpuInfo
from probes.cpulist import parse_int
from probes.sysfs import Sysfs

__all__ = ["Identity", "arm_core_names", "read_arch", "read_identity"]


@dataclass(frozen=True)
class Identity:
    """Names; each is None where no source says it. `hostname` is a label, never identity."""

    arch: str | None = None
    vendor: str | None = None
    model_name: str | None = None
    kernel: str | None = None
    hostname: str | None = None
    is_virtual: bool | None = None


def read_identity(sysfs: Sysfs, cpuinfo: CpuInfo, arch: str | None, note: Callable[[str], None]) -> Identity:
    """The machine's names, as the kernel or the implementer tables give them."""
    if arch is None:
        note("architecture unknown: no cpuinfo that tells it")
    return Identity(
        arch=arch,
        vendor=_vendor(cpuinfo),
        model_name=_model_name(cpuinfo, note),
        kernel=_kernel(sysfs),
        hostname=sysfs.text("proc/sys/kernel/hostname") or None,
        is_virtual=_is_virtual(sysfs, cpuinfo),
    )


def read_arch(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    """The architecture from the kernel's own word, else from the form of cpuinfo; None when neither tells."""
    told = sysfs.text("proc/sys/kernel/arch")
    if told and re.fullmatch(r"[A-Za-z0-9_]{2,20}", told):
        return told
    for guess in (_x86, _arm, _power, _s390, _riscv, _loongarch, _mips, _sparc, _others):
        arch = guess(sysfs, cpuinfo)
        if arch:
            return arch
    return None


def arm_core_names(cpuinfo: CpuInfo) -> dict[int, str]:
    """For each CPU of an ARM machine the name of its core design, or `implementer:part` if unknown."""
    parts = cpuinfo.by_cpu("cpu part")
    names = {}
    for cpu, implementer_text in cpuinfo.by_cpu("cpu implementer").items():
        implementer, part = parse_int(implementer_text), parse_int(parts.get(cpu))
        if implementer is not None and part is not None:
            names[cpu] = PARTS.get(implementer, {}).get(part, f"{implementer:#x}:{part:#x}")
    return names


def _x86(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    flags = cpuinfo.first("flags")
    if flags is None or cpuinfo.first("vendor_id", "cpu family", "fpu_exception", "bogomips") is None:
        words = set((flags or "").split())
        if not words & {"sse2", "fpu", "lm"}:
            return None
    return "x86_64" if "lm" in (flags or "").split() else "i686"


def _arm(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    if cpuinfo.first("cpu implementer") is None:
        return None
    features = (cpuinfo.first("features") or "").split()
    told = " ".join(filter(None, (cpuinfo.first("processor text"), cpuinfo.first("model name")))).lower()
    generation = (cpuinfo.first("cpu architecture") or "").lower()
    if "asimd" in features or "aarch64" in f"{told} {generation}" or "(v8l)" in told:
        return "aarch64"
    match = re.search(r"\((v\d+\w*)\)", told)
    if match:
        return f"arm{match[1]}"
    digit = re.match(r"\d+", generation)
    if digit is None:
        return "arm"
    return "aarch64" if int(digit[0]) >= 8 else f"armv{digit[0]}l"


def _power(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    name = cpuinfo.first("cpu") or ""
    if not re.match(r"(POWER|PPC|PowerPC|Cell|e\d{3}|\d{3,4}|G[345])", name, re.IGNORECASE):
        return None
    if cpuinfo.first("revision", "clock", "timebase") is None:
        return None
    is_64 = re.match(r"(POWER|PPC9|PPC64|Cell|970|e5500|e6500)", name, re.IGNORECASE)
    if not is_64:
        return "ppc"
    return "ppc64le" if sysfs.text("sys/kernel/cpu_byteorder") == "little" else "ppc64"


def _s390(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    if "S390" not in (cpuinfo.first("vendor_id") or ""):
        return None
    return "s390x" if "zarch" in (cpuinfo.first("features") or "zarch").split() else "s390"


def _riscv(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    match = re.match(r"rv(32|64|128)", cpuinfo.first("isa") or "")
    return f"riscv{match[1]}" if match else None


def _loongarch(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    is_loong = "lam" in (cpuinfo.first("features") or "").split() or "loongarch" in (
        cpuinfo.first("isa") or ""
    )
    return (
        ("loongarch32" if "32bit" in (cpuinfo.first("cpu family") or "") else "loongarch64")
        if is_loong
        else None
    )


def _mips(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    isa = cpuinfo.first("isa") or ""
    if "mips" not in isa and not (
        cpuinfo.first("cpu model") and cpuinfo.first("system type", "ases implemented")
    ):
        return None
    return "mips64" if "mips64" in isa or "mips3" in isa.split() or "mips4" in isa.split() else "mips"


def _sparc(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    kind = cpuinfo.first("type") or ""
    return ("sparc64" if kind in ("sun4u", "sun4v") else "sparc") if kind.startswith("sun4") else None


def _others(sysfs: Sysfs, cpuinfo: CpuInfo) -> str | None:
    if (cpuinfo.first("cpu") or "").lower() == "alpha":
        return "alpha"
    return "ia64" if (cpuinfo.first("arch") or "").upper() == "IA-64" else None


def _vendor(cpuinfo: CpuInfo) -> str | None:
    told = cpuinfo.first("vendor_id", "vendor", "mvendorid")
    if told:
        return told
    implementer = parse_int(cpuinfo.first("cpu implementer"))
    if implementer is not None:
        return IMPLEMENTERS.get(implementer, f"{implementer:#04x}")
    if (cpuinfo.first("cpu") or "").upper().startswith("POWER"):
        return "IBM"
    design = cpuinfo.first("uarch") or ""
    if "," in design:
        return design.partition(",")[0]
    name = cpuinfo.first("model name", "cpu model", "cpu family") or ""
    return "Loongson" if "loongson" in name.lower() else None


def _model_name(cpuinfo: CpuInfo, note: Callable[[str], None]) -> str | None:
    cores = arm_core_names(cpuinfo)
    if cores:
        named = sorted({name for name in cores.values() if ":" not in name})
        strange = sorted({name for name in cores.values() if ":" in name})
        if strange:
            note(f"ARM core design not in the tables: {', '.join(strange)} (implementer:part)")
        if named:
            return " + ".join(named)
        told = cpuinfo.first("model name")
        return told if told and not re.match(r"(ARM|AArch64)", told, re.IGNORECASE) else None
    machine = cpuinfo.first("machine")
    if "S390" in (cpuinfo.first("vendor_id") or "") and machine:
        return f"IBM machine type {machine}"
    return cpuinfo.first("model name", "cpu model", "cpu", "uarch", "family")


def _kernel(sysfs: Sysfs) -> str | None:
    release = sysfs.text("proc/sys/kernel/osrelease")
    if release:
        return release
    match = re.match(r"Linux version (\S+)", sysfs.text("proc/version") or "")
    return match[1] if match else None


def _is_virtual(sysfs: Sysfs, cpuinfo: CpuInfo) -> bool | None:
    flags = cpuinfo.first("flags")
    if flags is not None:
        return "hypervisor" in flags.split()
    return True if sysfs.text("sys/hypervisor/type") else None
