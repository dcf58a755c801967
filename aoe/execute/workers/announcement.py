"""A worker's announcement of its machine, and the tasks it may get."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from aoe.device.protocol import Device
from aoe.target import Target

_PACKAGES = {"aoe": "aoebank", "halide": "halide", "onnxruntime": "onnxruntime"}
_MISSING = "not installed"


class WorkerPart(StrEnum):
    """Use of a worker."""

    MEASURING = "measuring"
    """Measures and compiles."""
    COMPILING = "compiling"
    """Only compiles: it is another machine than the one tuned for."""
    REFUSED = "refused"
    """Nothing: what it compiles or measures would not be comparable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """Facts a worker reports about its machine and versions."""

    name: str  # What it was called when it was started, else its address
    host: str  # Machine it runs on; workers of one host and one set of cores share a device
    pid: int  # Its process there
    target: Target  # What its machine is
    cores: tuple[str, ...]  # Names of the cores it may use
    versions: Mapping[str, str]  # Of aoe, halide, onnxruntime

    @property
    def device(self) -> str:
        """Name of what it measures on, the same for all workers that share it."""
        return f"{self.host}/{','.join(self.cores)}"


class Announce(Protocol):
    """Describes the machine of a worker; see `announce`."""

    def __call__(
        self, device: Device, core_num: int, *, name: str, address: str, pid: int
    ) -> Announcement:
        """Return the announcement of the worker."""
        ...


def announce(device: Device, core_num: int, *, name: str, address: str, pid: int) -> Announcement:
    """Return the announcement of this machine as a worker.

    Args:
        device: Kind of device the run is for.
        core_num: Threads it is tuned for.
        name: Of the worker.
        address: It is reached at, `tcp://10.0.0.5:41243`.
        pid: Of the worker.
    """
    where = address.partition("://")[2].rpartition(":")[0]
    return Announcement(
        name=name,
        host=f"{socket.gethostname()}@{where}",
        pid=pid,
        target=device.describe(core_num),
        cores=device.cores(),
        versions={known: _version(package) for known, package in _PACKAGES.items()},
    )


def part_of(
    announced: Announcement, target: Target, versions: Mapping[str, str]
) -> tuple[WorkerPart, str]:
    """Return the parts a worker can take, and the reason where it cannot take all.

    Args:
        announced: The worker.
        target: What is tuned for.
        versions: Of the run.
    """
    theirs = announced.versions
    if other := [name for name in _PACKAGES if theirs.get(name) != versions.get(name)]:
        told = ", ".join(
            f"{name} {theirs.get(name, _MISSING)} instead of {versions.get(name, _MISSING)}"
            for name in other
        )
        return WorkerPart.REFUSED, told
    machine = announced.target
    if machine.architecture != target.architecture:
        reason = f"{machine.architecture} instead of {target.architecture}"
        return WorkerPart.REFUSED, reason
    if machine.soc_version != target.soc_version:
        return WorkerPart.COMPILING, f"{machine.soc_version} instead of {target.soc_version}"
    if machine.core_num < target.core_num:
        return WorkerPart.COMPILING, f"{machine.core_num} cores instead of {target.core_num}"
    return WorkerPart.MEASURING, ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _MISSING
