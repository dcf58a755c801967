"""Microarchitectures by vendor, family and model: what a CPU is, whatever flags are let through.

A hypervisor masks features as it likes, so a name made from them changes with the cloud: a Zen 4
guest, a Zen 5 guest and a Xeon may all pass for `x86-64-v4` and share a bank that suits none of
them. The numbers stay. They are believed unless the CPU has an extension which the
microarchitecture they name never had: then the hypervisor made the numbers up.

Names are those of archspec where it has one, else GCC's `-march`, and like theirs they stand for
all parts a compiler treats alike (Kaby, Coffee and Comet Lake are `skylake`).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from aoe.device.cpu.cpuinfo import CpuInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Microarchitecture:
    """A microarchitecture and the CPUs that have it."""

    name: str  # As in a soc_version, behind the architecture
    vendor: str  # As `CpuInfo.vendor` spells it
    family: int  # Of x86; 0 on Arm
    models: frozenset[int]  # Models of the family; parts on Arm
    steppings: range = range(16)  # Where several share a model
    extensions: frozenset[str] = frozenset()  # Those of `EXTENSIONS` it has when nothing is masked


_AVX2 = frozenset({"avx2"})
_AVX2_VNNI = _AVX2 | {"avx_vnni"}
_AVX512 = _AVX2 | {"avx512f"}
_AVX512_VNNI = _AVX512 | {"avx512_vnni"}
_AVX512_BF16 = _AVX512_VNNI | {"avx512_bf16"}
_ZEN5 = _AVX512_BF16 | {"avx_vnni", "avx512_vp2intersect"}
_AMX = _AVX512_BF16 | {"avx_vnni", "avx512_fp16", "amx_tile"}
_SVE2 = frozenset({"sve", "sve2"})
EXTENSIONS = _ZEN5 | _AMX | _SVE2 | {"amx_fp16"}
"""Vector and matrix extensions, as `/proc/cpuinfo` names them: they tell parts apart for sure."""


def _amd(name: str, family: int, *models: range, has: frozenset[str]) -> Microarchitecture:
    numbers = frozenset(number for span in models for number in span)
    return Microarchitecture(
        name=name, vendor="AuthenticAMD", family=family, models=numbers, extensions=has
    )


def _intel(
    name: str, *models: int, has: frozenset[str], steppings: range = range(16)
) -> Microarchitecture:
    return Microarchitecture(
        name=name,
        vendor="GenuineIntel",
        family=6,
        models=frozenset(models),
        steppings=steppings,
        extensions=has,
    )


def _arm(
    name: str, vendor: int, *parts: int, has: frozenset[str] = frozenset()
) -> Microarchitecture:
    return Microarchitecture(
        name=name, vendor=f"{vendor:#04x}", family=0, models=frozenset(parts), extensions=has
    )


MICROARCHITECTURES = (
    # Source: Linux arch/x86/kernel/cpu/amd.c, bsp_init_amd: the Zen generations
    _amd("zen", 0x17, range(0x30), range(0x50, 0x60), has=_AVX2),
    _amd(
        *("zen2", 0x17, range(0x30, 0x50), range(0x60, 0x80), range(0x90, 0x92)),
        *(range(0xA0, 0xB0),),
        has=_AVX2,
    ),
    _amd("zen3", 0x19, range(0x10), range(0x20, 0x60), has=_AVX2),
    _amd("zen4", 0x19, range(0x10, 0x20), range(0x60, 0xB0), has=_AVX512_BF16),
    _amd("zen5", 0x1A, range(0x30), range(0x40, 0x50), range(0x60, 0x80), has=_ZEN5),
    # Source: Linux arch/x86/include/asm/intel-family.h for the models; GCC
    # gcc/common/config/i386/cpuinfo.h, get_intel_cpu, for what counts as the same
    _intel("haswell", 0x3C, 0x3F, 0x45, 0x46, has=_AVX2),
    _intel("broadwell", 0x3D, 0x47, 0x4F, 0x56, has=_AVX2),
    _intel("skylake", 0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6, has=_AVX2),
    # Source: Linux intel-family.h: Cascade Lake is stepping 7 (5 and 6 before sale) of Skylake's
    # model, Cooper Lake 11 (10 before sale)
    _intel("skylake-avx512", 0x55, steppings=range(5), has=_AVX512),
    _intel("cascadelake", 0x55, steppings=range(5, 8), has=_AVX512_VNNI),
    _intel("cooperlake", 0x55, steppings=range(10, 12), has=_AVX512_BF16),
    _intel("cannonlake", 0x66, has=_AVX512),
    _intel("icelake", 0x6A, 0x6C, 0x7D, 0x7E, 0x9D, has=_AVX512_VNNI),
    _intel("tigerlake", 0x8C, 0x8D, has=_AVX512_VNNI | {"avx512_vp2intersect"}),
    _intel("rocketlake", 0xA7, has=_AVX512_VNNI),
    _intel("alderlake", 0x97, 0x9A, 0xB7, 0xBA, 0xBF, 0xAA, 0xAC, has=_AVX2_VNNI),
    _intel("arrowlake", 0xC5, 0xB5, has=_AVX2_VNNI),
    _intel("arrowlake-s", 0xC6, 0xBD, has=_AVX2_VNNI),
    _intel("sapphirerapids", 0x8F, 0xCF, has=_AMX),
    _intel("graniterapids", 0xAD, 0xAE, has=_AMX | {"amx_fp16"}),
    _intel("sierraforest", 0xAF, has=_AVX2_VNNI),
    # Source: Linux arch/arm64/include/asm/cputype.h; archspec's microarchitectures.json
    _arm("cortex-a72", 0x41, 0xD08),
    _arm("neoverse-n1", 0x41, 0xD0C),
    _arm("neoverse-v1", 0x41, 0xD40, has=frozenset({"sve"})),
    _arm("neoverse-n2", 0x41, 0xD49, has=_SVE2),
    _arm("neoverse-n2", 0x6D, 0xD49, has=_SVE2),  # Microsoft's Cobalt 100
    _arm("neoverse-v2", 0x41, 0xD4F, has=_SVE2),
    _arm("a64fx", 0x46, 0x001, has=frozenset({"sve"})),
    _arm("tsv110", 0x48, 0xD01),  # HiSilicon's Kunpeng 920, the host of many Ascend servers
    _arm("thunderx2", 0x43, 0x0AF),
    _arm("ampere1", 0xC0, 0xAC3),
    _arm("ampere1a", 0xC0, 0xAC4),
    _arm("m1", 0x61, 0x022, 0x023, 0x024, 0x025, 0x028, 0x029),
    _arm("m2", 0x61, 0x032, 0x033, 0x034, 0x035, 0x038, 0x039),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuName:
    """Name of a CPU."""

    soc_version: str  # Without `_`, for example `x86-64-zen5`
    # Why the name was made from the features, empty if it was made from the numbers.
    caveat: str = ""


def name_cpu(info: CpuInfo, machine: str | None = None) -> CpuName:
    """Return the name of a CPU, from its numbers if they can be right, else from its features.

    Features that are missing never change the name: hypervisors mask them.

    Args:
        info: What the CPU says.
        machine: Architecture as `platform.machine` spells it; None for this machine's.
    """
    architecture = _architecture(machine or platform.machine())
    found = _by_numbers(info, MICROARCHITECTURES)
    if found is None:
        caveat = f"{info} is not known" if info.vendor else "the CPU does not say what it is"
    else:
        impossible = sorted((info.features & EXTENSIONS) - found.extensions)
        if not impossible:
            return CpuName(soc_version=f"{architecture}-{found.name}")
        caveat = f"{info} is {found.name}, which has no {', '.join(impossible)}"
    return CpuName(soc_version=_by_features(info, architecture), caveat=caveat)


def _by_numbers(info: CpuInfo, known: Sequence[Microarchitecture]) -> Microarchitecture | None:
    return next(
        (
            one
            for one in known
            if (one.vendor, one.family) == (info.vendor, info.family)
            and info.model in one.models
            and info.stepping in one.steppings
        ),
        None,
    )


def _by_features(info: CpuInfo, architecture: str) -> str:
    """Return the newest microarchitecture whose features are all there, as archspec finds it."""
    from archspec.cpu import TARGETS, detect, generic_microarchitecture

    partial = detect.partial_uarch(vendor=info.vendor, features=set(info.features))
    family = architecture.replace("-", "_")
    fits = detect.COMPATIBILITY_CHECKS.get(family, lambda said, known: False)
    fitting = [known for known in TARGETS.values() if fits(partial, known)]
    fitting = fitting or [generic_microarchitecture(family)]
    generic = max((one for one in fitting if one.vendor == "generic"), key=_depth)
    newer = [one for one in fitting if one > generic]  # a niche feature may be off in the BIOS
    name = str(max(newer, key=_depth, default=generic).name).replace("_", "-")
    return name if name.startswith(architecture) else f"{architecture}-{name}"


def _depth(one: object) -> tuple[int, int]:
    return len(one.ancestors), len(one.features)  # type: ignore[attr-defined]


def _architecture(machine: str) -> str:
    return {"amd64": "x86-64", "arm64": "aarch64"}.get(
        machine.lower(), machine.lower().replace("_", "-")
    )
