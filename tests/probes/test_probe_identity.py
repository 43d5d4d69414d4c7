"""The forms of cpuinfo that the architectures' kernels print."""

from __future__ import annotations

import pytest
from trees import Tree

POWER9 = """
processor : 0
cpu       : POWER9, altivec supported
clock     : 3783MHz
revision  : 2.2 (pvr 004e 1202)
"""
S390 = """
vendor_id       : IBM/S390
# processors    : 2
max thread id   : 0
features        : esan3 zarch stfle msa vx vxd vxe
cache2          : level=2 type=Data scope=Private size=4096K line_size=256 associativity=8
cache3          : level=3 type=Unified scope=Shared size=262144K line_size=256 associativity=32
processor 0: version = FF,  identification = 123456,  machine = 3931
processor 1: version = FF,  identification = 123456,  machine = 3931

cpu number      : 0
cpu MHz dynamic : 5200
"""
RISCV = """
processor : 0
hart      : 1
isa       : rv64imafdc_zicsr_zba_zvfh
mmu       : sv39
uarch     : sifive,u74-mc
"""
LOONG = """
system type : generic-loongson-machine

processor   : 0
package     : 0
core        : 0
CPU Family  : Loongson-64bit
Model Name  : Loongson-3A5000
Features    : cpucfg lam ual fpu lsx lasx
"""
MIPS = """
system type      : generic
processor        : 0
cpu model        : ICT Loongson-3 V0.4
isa              : mips1 mips3 mips64r2
ASEs implemented : vz msa
"""
SPARC = """
cpu          : UltraSparc T1 (Niagara)
prom         : OBP 4.25.0
type         : sun4v
ncpus active : 2
CPU0         : online
"""
OLD_ARM = """
Processor : ARMv7 Processor rev 2 (v7l)
processor : 0
BogoMIPS  : 6.00

processor : 1
BogoMIPS  : 6.00

Features         : swp half thumb neon vfpv4
CPU implementer  : 0x41
CPU architecture : 7
CPU part         : 0xc0f

Hardware         : SOME BOARD
"""
COMPACT_ARM = """
Processor        : AArch64 Processor rev 4 (aarch64)
processor        : 0
processor        : 1
Features         : fp asimd crc32
CPU implementer  : 0x41
CPU architecture : AArch64
CPU part         : 0xd03

Hardware         : Board
"""
PHONE = """
processor        : 0
Features         : fp asimd
CPU implementer  : 0x41
CPU architecture : 8
CPU part         : 0xd05

processor        : 1
Features         : fp asimd asimddp
CPU implementer  : 0x53
CPU architecture : 8
CPU part         : 0x002
"""


@pytest.mark.parametrize(
    ("text", "arch", "vendor", "model", "feature"),
    [
        (POWER9, "ppc64", "IBM", "POWER9, altivec supported", "altivec"),
        (S390, "s390x", "IBM/S390", "IBM machine type 3931", "vxe"),
        (RISCV, "riscv64", "sifive", "sifive,u74-mc", "zvfh"),
        (LOONG, "loongarch64", "Loongson", "Loongson-3A5000", "lasx"),
        (MIPS, "mips64", "Loongson", "ICT Loongson-3 V0.4", "msa"),
        (SPARC, "sparc64", None, "UltraSparc T1 (Niagara)", None),
        (OLD_ARM, "armv7l", "ARM", "Cortex-A15", "neon"),
        (COMPACT_ARM, "aarch64", "ARM", "Cortex-A53", "asimd"),
        (PHONE, "aarch64", "ARM", "Cortex-A55 + exynos-m3", "asimd"),
        ("processor : 0\nvendor_id : AuthenticAMD\nflags : fpu sse2\n", "i686", "AuthenticAMD", None, "sse2"),
        ("", None, None, None, None),
    ],
)
def test_cpuinfo_forms(
    tree: Tree, text: str, arch: str | None, vendor: str | None, model: str | None, feature: str | None
) -> None:
    machine = tree.write("proc/cpuinfo", text).probe()
    assert (machine.arch, machine.vendor, machine.model_name) == (arch, vendor, model)
    assert feature is None or feature in machine.features


def test_byte_order_and_the_kernel_s_own_word_tell_the_arch(tree: Tree) -> None:
    tree.write("proc/cpuinfo", POWER9).write("sys/kernel/cpu_byteorder", "little\n")
    assert tree.probe().arch == "ppc64le"
    assert tree.write("proc/sys/kernel/arch", "riscv64\n").probe().arch == "riscv64"


def test_old_arm_lines_that_follow_the_blocks_belong_to_all(tree: Tree) -> None:
    machine = tree.write("proc/cpuinfo", OLD_ARM).probe()
    assert (machine.logical_cpus, machine.physical_cores) == (2, 2)
    assert [kind.cpus for kind in machine.core_kinds] == [(0, 1)]


def test_only_what_every_core_can_is_a_feature(tree: Tree) -> None:
    machine = tree.write("proc/cpuinfo", PHONE).probe()
    assert "asimddp" not in machine.features
    assert any("differ in their instruction sets" in note for note in machine.notes)


def test_an_arm_core_that_no_table_names_is_told_by_number(tree: Tree) -> None:
    machine = tree.arm({0: 0x7FF, 1: 0x7FF}, implementer=0x77).probe()
    assert (machine.vendor, machine.model_name) == ("0x77", None)
    assert "ARM core design not in the tables: 0x77:0x7ff (implementer:part)" in machine.notes


def test_power_vector_units_come_from_the_auxiliary_vector(tree: Tree) -> None:
    tree.write("proc/cpuinfo", POWER9)
    auxv = b"".join(n.to_bytes(8, "big") for n in (16, 0x10000080, 26, 0x00060000, 0, 0))
    (tree.root / "proc/self").mkdir()
    (tree.root / "proc/self/auxv").write_bytes(auxv)
    machine = tree.probe()
    assert {"vsx", "altivec", "mma", "arch_3_1"} <= set(machine.features)
    assert machine.inference_isa.matrix == "mma"


def test_s390_shared_caches_stand_in_cpuinfo(tree: Tree) -> None:
    caches = tree.write("proc/cpuinfo", S390).probe().caches
    assert [(cache.level, cache.type, cache.size_bytes, cache.instances) for cache in caches] == [
        (2, "data", 4 << 20, None),
        (3, "unified", 256 << 20, None),
    ]


def test_names_kernel_and_label(tree: Tree) -> None:
    tree.plain(2).write("proc/sys/kernel/osrelease", "6.1.0-test\n").write(
        "proc/sys/kernel/hostname", "box\n"
    )
    machine = tree.probe()
    assert (machine.kernel, machine.hostname, machine.identity.is_virtual) == ("6.1.0-test", "box", False)
    tree.remove("proc/sys/kernel/osrelease").write("proc/version", "Linux version 5.4.0 (gcc) #1")
    assert tree.x86(range(2), flags="fpu lm hypervisor").probe().kernel == "5.4.0"
    assert tree.probe().identity.is_virtual is True


@pytest.mark.parametrize(
    ("flags", "arch", "summary"),
    [
        ("avx2 f16c avx_vnni sme", "x86_64", ("avx2", 256, "avx_vnni", None, "f16c", None)),
        ("avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_int8", "x86_64",
         ("avx512f", 512, "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8")),
        ("asimd asimdhp asimddp sve i8mm bf16 sme", "aarch64",
         ("sve", None, "i8mm", "bf16", "asimdhp", "sme")),
        ("v zvfh", "riscv64", ("v", None, None, None, "zvfh", None)),
        ("msa vx vxe", "s390x", ("vxe", 128, None, None, None, None)),
        ("lsx lasx", "loongarch64", ("lasx", 256, None, None, None, None)),
        ("avx2", None, (None, None, None, None, None, None)),
    ],
)  # fmt: skip
def test_what_matters_for_inference(flags: str, arch: str | None, summary: tuple[object, ...]) -> None:
    from probes.isa import summarize_isa

    assert tuple(summarize_isa(flags.split(), arch).to_json().values()) == summary
