"""The CPU as a device."""

from __future__ import annotations

from dataclasses import dataclass

from aoe.device.cpu.host import describe_host, missing_features
from aoe.target import Target

_ARCHITECTURES = ("x86-64", "aarch64")


@dataclass(frozen=True, slots=True)
class Cpu:
    """This machine's CPU; see `Device` for what each method is for."""

    def describe(self, core_num: int | None = None) -> Target:
        """Describe this machine's CPU."""
        return describe_host(core_num)

    def serves(self, soc_version: str) -> bool:
        """Return whether a target is a CPU."""
        return soc_version.startswith(_ARCHITECTURES)

    def missing_features(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the CPU features `needed` which this CPU lacks."""
        return missing_features(needed)
