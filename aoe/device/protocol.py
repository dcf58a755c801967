"""What every kind of device does for the engine."""

from __future__ import annotations

from typing import Protocol

from aoe.target import Target


class Device(Protocol):
    """A processor kernels run on, with the runtime that hosts them.

    A device holds no state: it is sent to the measuring process as it is.
    """

    def describe(self, core_num: int | None = None) -> Target:
        """Describe what is there; `core_num` None stands for every usable core."""
        ...

    def serves(self, soc_version: str) -> bool:
        """Return whether a target is of this kind, on this machine or on another."""
        ...

    def missing_features(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the features kernels need which are not there."""
        ...
