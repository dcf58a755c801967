"""Facts of a CPU as Linux lists them: vendor, family, model and features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_ARM_FAMILY = 0  # Arm numbers its parts, in no families


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuInfo:
    """The first processor of a machine."""

    # `GenuineIntel`, `AuthenticAMD`; on Arm the implementer, `0x41`. Empty if unknown.
    vendor: str = ""
    family: int = -1  # Of x86; 0 on Arm
    model: int = -1  # Of the family; on Arm the part
    stepping: int = 0  # Revision of the model; on Arm 0
    features: frozenset[str] = frozenset()  # As `/proc/cpuinfo` names them, masked ones left out
    name: str = ""  # Marketing name, empty if there is none

    def __str__(self) -> str:
        """Return the numbers as people quote them."""
        if self.family == _ARM_FAMILY:
            return f"implementer {self.vendor} part {self.model:#x}"
        return f"{self.vendor} family {self.family} model {self.model}"


def read_cpuinfo(file: Path = CPUINFO) -> CpuInfo:
    """Return the facts in `/proc/cpuinfo`; empty where the file has none."""
    try:
        with file.open() as lines:
            return parse_cpuinfo(lines)
    except OSError:
        return CpuInfo()


def parse_cpuinfo(lines: Iterable[str]) -> CpuInfo:
    """Return the first processor of `/proc/cpuinfo`; the others are not read.

    >>> print(parse_cpuinfo(["vendor_id : AuthenticAMD", "cpu family : 25", "model : 17"]))
    AuthenticAMD family 25 model 17
    """
    pairs = (line.partition(":") for line in takewhile(str.strip, lines))
    said = {name.strip(): value.strip() for name, _, value in pairs}
    if "CPU implementer" in said:
        return CpuInfo(
            vendor=said["CPU implementer"],
            family=_ARM_FAMILY,
            model=_number(said.get("CPU part")),
            features=frozenset(said.get("Features", "").split()),
            name=said.get("model name", ""),
        )
    return CpuInfo(
        vendor=said.get("vendor_id", ""),
        family=_number(said.get("cpu family")),
        model=_number(said.get("model")),
        stepping=_number(said.get("stepping"), absent=0),
        features=frozenset(said.get("flags", "").split()),
        name=said.get("model name", ""),
    )


def _number(text: str | None, *, absent: int = -1) -> int:
    try:
        return int(text or "", 0)
    except ValueError:  # "unknown", as the kernel writes it
        return absent
