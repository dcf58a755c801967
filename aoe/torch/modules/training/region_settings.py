"""How the regions of a training graph are tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.tuner.mode import TuneSettings

if TYPE_CHECKING:
    from aoe.tuner.reuse.earlier import EarlierResult

DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSettings:
    """How regions are tuned."""

    tune: TuneSettings  # Options of the run
    env: Mapping[str, str]
    name: str  # Of the module, for records
    direction: str  # One of `DIRECTIONS`
    limit_s: float  # For all regions of the graph together
    base: EarlierResult | None = None  # Of which only what has changed is tuned
