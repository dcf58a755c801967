"""Facts about this machine, for the history of a bank and for fingerprints."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from aoebank.model.record import Record

CPU_INFO = Path("/proc/cpuinfo")
CPUS = Path("/sys/devices/system/cpu")
# entry points of engines: functions that take a record
_SOURCES = "aoebank.kernel_source"  # returns its `kernel_source`
_STRATEGIES = "aoebank.strategy_problem"  # returns why the engine cannot use its strategy
_LIBRARIES = ("onnxruntime", "halide", "torch")


def cpu_model(cpu_info: Path = CPU_INFO) -> str:
    """Return the marketing name of the CPU, whatever the platform says where there is none."""
    try:
        lines = cpu_info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor())


def governor(cpus: Path = CPUS) -> str:
    """Return the governor of the clock, the empty string where none is named."""
    found = set()
    for file in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"):
        try:
            found.add(file.read_text(encoding="ascii", errors="replace").strip())
        except OSError:
            continue
    return ",".join(sorted(found))


def present_facts(libraries: Iterable[str] = _LIBRARIES, *, cpus: Path = CPUS) -> Mapping[str, str]:
    """Return the facts a fingerprint made here and now would have, as far as a look tells.

    Nothing is imported, nothing measured. What is not known is not in it.

    Args:
        libraries: Distributions whose versions count, if they are installed.
        cpus: Folder in which the kernel tells of the cores.
    """
    facts = {"cpu_model": cpu_model(), "governor": governor(cpus)}
    for name in libraries:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    return {name: value for name, value in facts.items() if value}


def kernel_source_of(
    engines: Iterable[EntryPoint] | None = None,
) -> Callable[[Record], str | None] | None:
    """Return the installed engine's function for the kernel source of a record, None without one.

    Args:
        engines: Where engines are looked for; None: the installed ones.
    """
    return cast("Callable[[Record], str | None] | None", _load(_SOURCES, engines))


def strategy_problem_of(
    engines: Iterable[EntryPoint] | None = None,
) -> Callable[[Record], str] | None:
    """Return the installed engine's check of its strategies, None without one.

    Args:
        engines: Where engines are looked for; None: the installed ones.
    """
    return cast("Callable[[Record], str] | None", _load(_STRATEGIES, engines))


def _load(group: str, engines: Iterable[EntryPoint] | None) -> object:
    for engine in entry_points(group=group) if engines is None else engines:
        try:
            return engine.load()
        except (ImportError, AttributeError):
            continue
    return None
