"""The hardware code is made for: this machine's CPU, named and described."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache

from aoe.errors import TargetError

_HALIDE_FEATURES = {
    # kernel feature -> CPU features it needs (Linux /proc/cpuinfo names, as archspec gives them);
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
would only make tuned models less portable, so they are left out."""

_BUILTIN_NAMES = {"sse4_1": "sse4.1"}  # spelling of GCC's and Clang's __builtin_cpu_supports
_CACHE_ROOT = "/sys/devices/system/cpu/cpu0/cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A CPU and the number of its cores kernels are tuned for.

    Attributes:
        soc_version: Stable readable name without `_`, for example `x86-64-zen5`.
        core_num: Threads of the tuned model.
        features: Halide target features, in Halide's order.
        cpu_features: CPU features a machine needs to run the kernels.
        vector_lanes: float32 elements of one vector register.
        l1_bytes: Data cache of one core.
        l2_bytes: Second-level cache of one core.
        cpu_model: Marketing name, for people.
    """

    soc_version: str
    core_num: int
    features: tuple[str, ...]
    cpu_features: tuple[str, ...]
    vector_lanes: int
    l1_bytes: int
    l2_bytes: int
    cpu_model: str

    @property
    def halide_name(self) -> str:
        """Target string for Halide, without the features of a build mode."""
        machine = platform.machine().lower()
        arch = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "arm-64"}.get(machine, machine)
        return "-".join((arch, "linux", *self.features))

    @property
    def builtin_names(self) -> tuple[str, ...]:
        """CPU features as the C compiler's `__builtin_cpu_supports` spells them."""
        return tuple(_BUILTIN_NAMES.get(name, name) for name in self.cpu_features)


def host_target(core_num: int | None = None) -> Target:
    """Describe this machine's CPU.

    Args:
        core_num: Threads to tune for; default is every core this process may use.
    """
    facts = _host_facts()
    return Target(
        soc_version=facts.soc_version,
        core_num=core_num or usable_cores(),
        features=facts.features,
        cpu_features=facts.cpu_features,
        vector_lanes=facts.vector_lanes,
        l1_bytes=_cache_bytes(1, 32 << 10),
        l2_bytes=_cache_bytes(2, 1 << 20),
        cpu_model=_cpu_model(),
    )


def resolve_target(soc_version: str | None, core_num: int | None) -> Target:
    """Return the target of `--soc_version`; this engine tunes for the CPU it runs on.

    Raises:
        TargetError: `soc_version` names other hardware.
    """
    host = host_target(core_num)
    if soc_version in (None, "", "host", host.soc_version):
        return host
    if str(soc_version).lower().startswith("ascend"):
        raise TargetError(
            "--soc_version",
            "tuning for an Ascend processor needs a CANN toolkit on this machine, none was found",
            got=soc_version,
            hint="install CANN and source its set_env.sh, or leave --soc_version out to tune for "
            f"this CPU ({host.soc_version}); Ascend banks can be managed with aoebank alone",
        )
    raise TargetError(
        "--soc_version",
        "this machine is another target; tuning has to run on the hardware it is for",
        got=soc_version,
        expected=host.soc_version,
        hint="leave --soc_version out to tune for this machine",
    )


def usable_cores() -> int:
    """Cores this process may use: CPU affinity, cut by a cgroup quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:  # noqa: PTH123 - not a user's path
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return cores


def missing_cpu_features(needed: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `needed` (archspec names) which this CPU lacks."""
    have = _host_facts().all_features
    return tuple(name for name in needed if name not in have)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostFacts:
    soc_version: str
    features: tuple[str, ...]
    cpu_features: tuple[str, ...]
    all_features: frozenset[str]
    vector_lanes: int


@cache
def _host_facts() -> _HostFacts:
    import archspec.cpu

    host = archspec.cpu.host()
    everything = frozenset(host.features) | frozenset(
        feature for ancestor in host.ancestors for feature in ancestor.features
    )
    features = tuple(
        name for name, needed in _HALIDE_FEATURES.items() if everything.issuperset(needed)
    )
    lanes = 16 if "avx512_skylake" in features else 8 if "avx2" in features else 4
    family = str(host.family.name).replace("_", "-")
    name = str(host.name).replace("_", "-")
    return _HostFacts(
        soc_version=name if name.startswith(family) else f"{family}-{name}",
        features=features,
        cpu_features=tuple(n for key in features for n in _HALIDE_FEATURES[key]),
        all_features=everything,
        vector_lanes=lanes,
    )


def _cache_bytes(level: int, default: int) -> int:
    for index in range(8):
        try:
            values = []
            for name in ("level", "type", "size"):
                with open(f"{_CACHE_ROOT}/index{index}/{name}") as file:  # noqa: PTH123
                    values.append(file.read().strip())
        except OSError:
            return default
        if values[0] == str(level) and values[1] in ("Data", "Unified"):
            return int(values[2].rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}[values[2][-1]]
    return default


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123
            lines = [line for line in file if line.startswith("model name")]
        return lines[0].split(":", 1)[1].strip()
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
