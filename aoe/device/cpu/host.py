"""Target of this machine: its cores, its caches, the features kernels are compiled with."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Collection
from pathlib import Path

from aoe.device.cpu.cpuinfo import CPUINFO, read_cpuinfo
from aoe.device.cpu.microarchitectures import name_cpu
from aoe.target import InstructionSet, Target

_HALIDE_FEATURES = {
    # kernel feature -> CPU features it needs, as /proc/cpuinfo names them;
    # Source: halide.TargetFeature, LLVM x86 sub-target features
    "sse41": ("sse4_1",),
    "avx": ("avx",),
    "f16c": ("f16c",),
    "fma": ("fma",),
    "avx2": ("avx2",),
    "avx512": ("avx512f", "avx512cd"),
    "avx512_skylake": ("avx512vl", "avx512bw", "avx512dq"),
}
"""Features kernels are compiled with. Later ones (VNNI, bf16, AMX) add nothing to float32 and
would only make tuned models less portable, so only kernels of lower precision have them."""

_AVX512_OF_BF16 = (
    *(_HALIDE_FEATURES["avx512"] + _HALIDE_FEATURES["avx512_skylake"]),
    *("avx512_bf16", "avx512_vnni", "avx512ifma", "avx512vbmi"),
    *("avx512_vbmi2", "avx512_bitalg", "avx512_vpopcntdq", "gfni"),
)
_BF16_DOT: dict[str, InstructionSet] = {
    "avx512_sapphirerapids": InstructionSet(
        features=("avx512_sapphirerapids",),
        cpu_features=(*_AVX512_OF_BF16, "avx512_fp16", "avx_vnni"),
    ),
    "avx512_zen4": InstructionSet(
        features=("avx512_zen4",), cpu_features=(*_AVX512_OF_BF16, "sse4a")
    ),
    "bf16": InstructionSet(cpu_features=("bf16",)),
}
"""Either x86 feature makes Halide emit `vdpbf16ps`, and either lets LLVM use what else such a
processor has (`-mcpu=znver4` knows SSE4a, which no Intel has). Source: Halide 21,
CodeGen_X86::mcpu_target; checked in the attributes of what it emits."""
_INT8_DOT = tuple(_BF16_DOT[name] for name in ("avx512_sapphirerapids", "avx512_zen4"))
"""Those that make Halide emit `vpdpbusd`; its `avxvnni` does not. Source: Halide 21, checked in
what it emits."""
_INT8_SUMS = ("avx512_vnni", "avx_vnni")
"""Features by which ONNX Runtime's MLAS sums products of 8 bits in 32, the preferred one first."""
_BF16_TILES, _INT8_TILES = (
    InstructionSet(cpu_features=("amx_tile", name)) for name in ("amx_bf16", "amx_int8")
)

_HALIDE_ARCHITECTURES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "arm-64"}
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_ARCH_PRCTL, _GET_SUPPORTED, _TILE_STATE = 158, 0x1021, 0b11 << 17
"""System call and code that ask which registers a process may have, and the bits of AMX's.
Source: Linux, arch/x86/include/uapi/asm/prctl.h; the call's number is that of x86-64."""


def system_grants_tiles() -> bool:
    """Return True if the operating system lets a process have AMX's registers.

    A sandbox may keep back what the CPU lists. This only asks: a library of kernels requests
    them when it is loaded.
    """
    supported = ctypes.c_uint64()
    asked = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _GET_SUPPORTED, ctypes.byref(supported))
    return asked == 0 and supported.value & _TILE_STATE == _TILE_STATE


def describe_host(
    core_num: int | None = None,
    *,
    cpuinfo: Path = CPUINFO,
    machine: str | None = None,
    caches: Path = _CACHES,
    tiles_granted: Callable[[], bool] = system_grants_tiles,
) -> Target:
    """Describe the CPU of this machine.

    Args:
        core_num: Threads to tune for, at most the cores this process may use; default is all.
        cpuinfo: What the kernel says of the processors.
        machine: Architecture as `platform.machine` spells it; None for this machine's.
        caches: What the kernel says of the caches.
        tiles_granted: Whether the operating system lets processes have AMX's registers.
    """
    info, machine = read_cpuinfo(cpuinfo), (machine or platform.machine()).lower()
    features = tuple(
        name for name, needed in _HALIDE_FEATURES.items() if info.features.issuperset(needed)
    )
    name = name_cpu(info, machine)
    dots, int8_dots = (
        [known for known in sets if info.features.issuperset(known.cpu_features)]
        for sets in (_BF16_DOT.values(), _INT8_DOT)
    )
    bf16_tiles, int8_tiles = (
        known if info.features.issuperset(known.cpu_features) and tiles_granted() else None
        for known in (_BF16_TILES, _INT8_TILES)
    )
    sums = [name for name in _INT8_SUMS if name in info.features]
    return Target(
        soc_version=name.soc_version,
        core_num=min(core_num or usable_cores(), usable_cores()),
        architecture=_HALIDE_ARCHITECTURES.get(machine, machine),
        features=features,
        cpu_features=tuple(needed for key in features for needed in _HALIDE_FEATURES[key]),
        vector_lanes=16 if "avx512_skylake" in features else 8 if "avx2" in features else 4,
        l1_bytes=_cache_bytes(caches, 1, 32 << 10),
        l2_bytes=_cache_bytes(caches, 2, 1 << 20),
        cpu_model=info.name or platform.processor() or platform.machine(),
        caveat=name.caveat,
        bf16_dot=next(iter(dots), None),
        bf16_tiles=bf16_tiles,
        int8_dot=next(iter(int8_dots), None),
        int8_tiles=int8_tiles,
        int8_sums=InstructionSet(cpu_features=(sums[0],)) if sums else None,
    )


def missing_features(needed: tuple[str, ...], cpuinfo: Path = CPUINFO) -> tuple[str, ...]:
    """Return the features among `needed` (names of `/proc/cpuinfo`) that this CPU lacks."""
    have = read_cpuinfo(cpuinfo).features
    return tuple(name for name in needed if name not in have)


def usable_cores(affinity: Collection[int] | None = None, quota_file: Path = _QUOTA) -> int:
    """Return the number of cores this process may use: CPU affinity, cut by a cgroup quota.

    Args:
        affinity: Cores it may run on; None asks the system.
        quota_file: What the control group says of the CPU, `cpu.max`.
    """
    cores = len(os.sched_getaffinity(0) if affinity is None else affinity)
    try:
        quota, period = quota_file.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return cores


def _cache_bytes(caches: Path, level: int, default: int) -> int:
    for index in range(8):
        try:
            folder = caches / f"index{index}"
            values = [(folder / name).read_text().strip() for name in ("level", "type", "size")]
        except OSError:
            return default
        if values[0] == str(level) and values[1] in ("Data", "Unified"):
            return int(values[2].rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}[values[2][-1]]
    return default
