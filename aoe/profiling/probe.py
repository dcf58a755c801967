"""Measures what this machine does at its best, once: kept by CPU and number of threads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aoe.device.protocol import Device
from aoe.errors import OutputError
from aoe.execute.rates import FLOAT_BYTES, STREAM_BYTES, measure_rates, stream_rate
from aoe.kernels.roofline import MachineRates
from aoe.measurement import QUIET_SHARE
from aoe.ort.sessions import session_options
from aoe.profiling.peak import BandwidthLevel, MachinePeak
from aoe.results.files import write_json
from aoe.target import Target

_SCHEMA = "aoe.machine_peak/1"
_CHAIN = 32
"""Operators behind each other where tensors are so small that calling one takes longer."""
_TRIES = 3
"""On a busy machine."""
_MEMORY_BYTES = 256 << 20
"""Past the third-level caches of most machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedPeak:
    """Peak rates found out about a machine."""

    peak: MachinePeak  # What it does at its best
    # False where the machine was busy meanwhile: the peak is too low, and not kept.
    quiet: bool = True
    was_kept: bool = False  # True where an earlier run has measured it


def measure_peak(device: Device, target: Target) -> MachinePeak:
    """Return the best of a few runs of a matrix product and of element-wise operators."""
    threads = target.core_num
    rates = measure_rates(device, session_options(threads=threads, optimize=True))
    plain = session_options(threads=threads, optimize=False)
    near = threads * target.l2_bytes // 2  # computed in place, so it is all that is touched
    sets = [BandwidthLevel(name="l3", working_bytes=STREAM_BYTES, bytes_per_us=rates.bytes_per_us)]
    if near < STREAM_BYTES:
        rate = stream_rate(device, plain, elements=near // FLOAT_BYTES, times=_CHAIN)
        sets.insert(0, BandwidthLevel(name="l2", working_bytes=near, bytes_per_us=rate))
    far = stream_rate(device, plain, elements=_MEMORY_BYTES // (2 * FLOAT_BYTES))
    sets.append(BandwidthLevel(name="memory", working_bytes=_MEMORY_BYTES, bytes_per_us=far))
    return MachinePeak(
        threads=threads, flops_per_us=2 * rates.multiply_adds_per_us, levels=tuple(sets)
    )


def machine_peak(
    device: Device,
    target: Target,
    cache: Path | None,
    measure: Callable[[Device, Target], MachinePeak] = measure_peak,
) -> ProbedPeak:
    """Return the peak of this machine, measured in a second or two if no run has done so yet.

    Args:
        device: The machine.
        target: Describes it; its cores are the threads.
        cache: Folder measured peaks are kept in, None to measure each time.
        measure: Measures a peak.
    """
    file = cache / _file_name(target) if cache is not None else None
    kept = _read(file) if file is not None else None
    if kept is not None:
        return ProbedPeak(peak=kept, was_kept=True)
    peak, quiet = _measure_quietly(device, target, measure)
    if quiet and file is not None:
        with suppress(OutputError):  # no room or no permission: measured again next time
            write_json(file, {"cpu_model": target.cpu_model, **_to_json(peak)})
    return ProbedPeak(peak=peak, quiet=quiet)


def _measure_quietly(
    device: Device, target: Target, measure: Callable[[Device, Target], MachinePeak]
) -> tuple[MachinePeak, bool]:
    """Return the best of a few tries, and whether the machine was quiet in the last of them."""
    best: MachinePeak | None = None
    for _ in range(_TRIES):
        before = device.usage()
        found = measure(device, target)
        best = found if best is None else _faster(best, found)
        if device.usage().since(before).given_share >= QUIET_SHARE:
            return best, True
    assert best is not None
    return best, False


def _faster(one: MachinePeak, other: MachinePeak) -> MachinePeak:
    """Return the better of two measurements of one machine, rate by rate."""
    levels = (
        max(pair, key=lambda level: level.bytes_per_us)
        for pair in zip(one.levels, other.levels, strict=True)
    )
    flops_per_us = max(one.flops_per_us, other.flops_per_us)
    return replace(one, flops_per_us=flops_per_us, levels=tuple(levels))


def peak_of_rates(rates: MachineRates, threads: int) -> MachinePeak:
    """Return the peak as far as a tuning run knows it: one bandwidth, for tensors of all sizes."""
    level = BandwidthLevel(name="l3", working_bytes=STREAM_BYTES, bytes_per_us=rates.bytes_per_us)
    return MachinePeak(
        threads=threads, flops_per_us=2 * rates.multiply_adds_per_us, levels=(level,)
    )


# ---- what is kept ----


def _file_name(target: Target) -> str:
    """Return a name that is another one for every CPU, number of threads and runtime."""
    facts = [
        *(target.cpu_model, target.soc_version, *target.features, str(target.l2_bytes)),
        *(str(target.core_num), version("onnxruntime")),
    ]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return f"{target.soc_version}_{target.core_num}_{digest}.json"


def _to_json(peak: MachinePeak) -> dict[str, Any]:
    return {"schema": _SCHEMA, **peak_to_json(peak)}


def _read(file: Path) -> MachinePeak | None:
    """Return the peak in a file, None if there is no valid one."""
    try:
        value = json.loads(file.read_bytes())
        return peak_from_json(value) if value["schema"] == _SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def peak_to_json(peak: MachinePeak) -> dict[str, Any]:
    """Return a peak as members of a document."""
    return {
        "threads": peak.threads,
        "gflops_per_s": peak.flops_per_us / 1e3,
        "bandwidths": [
            {
                "name": level.name,
                "working_bytes": level.working_bytes,
                "gbytes_per_s": level.bytes_per_us / 1e3,
            }
            for level in peak.levels
        ],
    }


def peak_from_json(value: Mapping[str, Any]) -> MachinePeak:
    """Return the peak a document holds.

    Raises:
        ValueError: a value is out of range.
        KeyError: a member is missing.
        TypeError: a member is of another type.
    """
    return MachinePeak(
        threads=int(value["threads"]),
        flops_per_us=float(value["gflops_per_s"]) * 1e3,
        levels=tuple(
            BandwidthLevel(
                name=str(level["name"]),
                working_bytes=int(level["working_bytes"]),
                bytes_per_us=float(level["gbytes_per_s"]) * 1e3,
            )
            for level in value["bandwidths"]
        ),
    )
