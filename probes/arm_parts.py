"""Names of ARM implementers and core designs by the identification numbers that cpuinfo prints."""

from __future__ import annotations

import re

__all__ = ["IMPLEMENTERS", "PARTS", "is_little_core"]

IMPLEMENTERS: dict[int, str] = {
    0x41: "ARM", 0x42: "Broadcom", 0x43: "Cavium", 0x44: "DEC", 0x46: "FUJITSU", 0x48: "HiSilicon",
    0x49: "Infineon", 0x4D: "Motorola/Freescale", 0x4E: "NVIDIA", 0x50: "APM", 0x51: "Qualcomm",
    0x53: "Samsung", 0x54: "Texas Instruments", 0x56: "Marvell", 0x61: "Apple", 0x66: "Faraday",
    0x68: "HXT", 0x69: "Intel", 0x6D: "Microsoft", 0x70: "Phytium", 0xC0: "Ampere",
}  # fmt: skip

_ARM = {
    0x810: "ARM810", 0x920: "ARM920", 0x922: "ARM922", 0x926: "ARM926", 0x940: "ARM940", 0x946: "ARM946",
    0x966: "ARM966", 0xA20: "ARM1020", 0xA22: "ARM1022", 0xA26: "ARM1026", 0xB02: "ARM11 MPCore",
    0xB36: "ARM1136", 0xB56: "ARM1156", 0xB76: "ARM1176",
    0xC05: "Cortex-A5", 0xC07: "Cortex-A7", 0xC08: "Cortex-A8", 0xC09: "Cortex-A9", 0xC0D: "Cortex-A17",
    0xC0E: "Cortex-A17", 0xC0F: "Cortex-A15",
    0xD01: "Cortex-A32", 0xD02: "Cortex-A34", 0xD03: "Cortex-A53", 0xD04: "Cortex-A35", 0xD05: "Cortex-A55",
    0xD06: "Cortex-A65", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72", 0xD09: "Cortex-A73", 0xD0A: "Cortex-A75",
    0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77", 0xD0E: "Cortex-A76AE",
    0xD13: "Cortex-R52", 0xD15: "Cortex-R82", 0xD40: "Neoverse-V1", 0xD41: "Cortex-A78",
    0xD42: "Cortex-A78AE", 0xD43: "Cortex-A65AE", 0xD44: "Cortex-X1", 0xD46: "Cortex-A510",
    0xD47: "Cortex-A710", 0xD48: "Cortex-X2", 0xD49: "Neoverse-N2", 0xD4A: "Neoverse-E1",
    0xD4B: "Cortex-A78C", 0xD4C: "Cortex-X1C", 0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3",
    0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4",
    0xD83: "Neoverse-V3AE", 0xD84: "Neoverse-V3", 0xD85: "Cortex-X925", 0xD87: "Cortex-A725",
    0xD88: "Cortex-A520AE", 0xD89: "Cortex-A720AE", 0xD8A: "C1-Nano", 0xD8B: "C1-Pro", 0xD8C: "C1-Ultra",
    0xD8E: "Neoverse-N3", 0xD8F: "Cortex-A320", 0xD90: "C1-Premium",
}  # fmt: skip
_BROADCOM = {0x0F: "Brahma-B15", 0x100: "Brahma-B53", 0x516: "ThunderX2"}
_CAVIUM = {
    0x0A0: "ThunderX", 0x0A1: "ThunderX-88XX", 0x0A2: "ThunderX-81XX", 0x0A3: "ThunderX-83XX",
    0x0AF: "ThunderX2-99xx", 0x0B0: "OcteonTX2", 0x0B1: "OcteonTX2-98XX", 0x0B2: "OcteonTX2-96XX",
    0x0B3: "OcteonTX2-95XX", 0x0B4: "OcteonTX2-95XXN", 0x0B5: "OcteonTX2-95XXMM",
    0x0B6: "OcteonTX2-95XXO", 0x0B8: "ThunderX3-T110",
}  # fmt: skip
_QUALCOMM = {
    0x001: "Oryon", 0x00F: "Scorpion", 0x02D: "Scorpion", 0x04D: "Krait", 0x06F: "Krait", 0x201: "Kryo",
    0x205: "Kryo", 0x211: "Kryo", 0x800: "Falkor-V1/Kryo", 0x801: "Kryo-V2", 0x802: "Kryo-3XX-Gold",
    0x803: "Kryo-3XX-Silver", 0x804: "Kryo-4XX-Gold", 0x805: "Kryo-4XX-Silver", 0xC00: "Falkor",
    0xC01: "Saphira",
}  # fmt: skip
_APPLE = {
    0x000: "Swift", 0x001: "Cyclone", 0x002: "Typhoon", 0x003: "Typhoon/Capri", 0x004: "Twister",
    0x005: "Twister/Elba/Malta", 0x006: "Hurricane", 0x007: "Hurricane/Myst", 0x008: "Monsoon",
    0x009: "Mistral", 0x00B: "Vortex", 0x00C: "Tempest", 0x00F: "Tempest-M9", 0x010: "Vortex/Aruba",
    0x011: "Tempest/Aruba", 0x012: "Lightning", 0x013: "Thunder", 0x020: "Icestorm-A14",
    0x021: "Firestorm-A14", 0x022: "Icestorm-M1", 0x023: "Firestorm-M1", 0x024: "Icestorm-M1-Pro",
    0x025: "Firestorm-M1-Pro", 0x026: "Thunder-M10", 0x028: "Icestorm-M1-Max", 0x029: "Firestorm-M1-Max",
    0x030: "Blizzard-A15", 0x031: "Avalanche-A15", 0x032: "Blizzard-M2", 0x033: "Avalanche-M2",
    0x034: "Blizzard-M2-Pro", 0x035: "Avalanche-M2-Pro", 0x036: "Sawtooth-A16", 0x037: "Everest-A16",
    0x038: "Blizzard-M2-Max", 0x039: "Avalanche-M2-Max",
}  # fmt: skip

PARTS: dict[int, dict[int, str]] = {
    0x41: _ARM,
    0x42: _BROADCOM,
    0x43: _CAVIUM,
    0x44: {0xA10: "SA110", 0xA11: "SA1100"},
    0x46: {0x001: "A64FX", 0x003: "MONAKA"},
    0x48: {0xD01: "Kunpeng-920", 0xD02: "TaiShan-v120", 0xD40: "Cortex-A76", 0xD41: "Cortex-A77"},
    0x4E: {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel", 0x010: "Olympus"},
    0x50: {0x000: "X-Gene"},
    0x51: _QUALCOMM,
    0x53: {0x001: "exynos-m1", 0x002: "exynos-m3", 0x003: "exynos-m4", 0x004: "exynos-m5"},
    0x56: {0x131: "Feroceon-88FR131", 0x581: "PJ4/PJ4b", 0x584: "PJ4B-MP"},
    0x61: _APPLE,
    0x66: {0x526: "FA526", 0x626: "FA626"},
    0x6D: {0xD49: "Azure-Cobalt-100"},
    0x70: {
        0x303: "FTC310",
        0x660: "FTC660",
        0x661: "FTC661",
        0x662: "FTC662",
        0x663: "FTC663",
        0x664: "FTC664",
        0x862: "FTC862",
    },
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a", 0xAC5: "Ampere-1b"},
}

_LITTLE = re.compile(
    r"Cortex-A(5|7|32|34|35|53|55|65|320|510|520)(AE)?(-\d)?$|C1-Nano|.*-Silver$"
    r"|(Icestorm|Blizzard|Sawtooth|Tempest|Mistral|Thunder\b(?!X))"
)


def is_little_core(name: str) -> bool:
    """Whether a core design of that name is made for efficiency: the small half of big.LITTLE machines."""
    return _LITTLE.match(name) is not None
