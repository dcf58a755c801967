"""How the regions of a training graph are tuned, and the bank of what is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.target import Target
from aoe.tuner.mode import TuneSettings

if TYPE_CHECKING:
    from aoe.bank.operators import OperatorBank
    from aoe.tuner.reuse.earlier import EarlierResult

DIRECTIONS = ("forward", "backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSettings:
    """How regions are tuned."""

    tune: TuneSettings  # Options of the run
    env: Mapping[str, str]
    name: str  # Of the module, for records
    direction: str  # One of `DIRECTIONS`
    limit_s: float  # For comparing the convolutions of a pass
    base: EarlierResult | None = None  # Of which only what has changed is tuned


def open_bank(settings: RegionSettings, target: Target) -> OperatorBank:
    """Return the bank, whose new records name the training.

    Args:
        settings: How regions are tuned.
        target: The records are of.
    """
    from aoe.bank.built_in import built_in_bank
    from aoe.bank.journal import BankJournal, fingerprint
    from aoe.bank.operators import OperatorBank, bank_root
    from aoe.tuner.parts import library_versions

    versions = library_versions()
    cwd = Path.cwd()
    journal = BankJournal(
        bank_root(settings.env, cwd, writes=not settings.tune.lookup_only),
        target.soc_version,
        # as the bank layer reads it: torch.__version__ of the same package may end in +cu132
        fingerprint={**fingerprint(target, versions), "torch": version("torch")},
        model={
            "name": settings.name,
            "graph": "training",
            "direction": settings.direction,
            "requires_grad": "true",
        },
        engine_version=versions["aoe"],
    )
    built_in = built_in_bank(settings.env, cwd)
    base = settings.base.bank if settings.base is not None else None
    return OperatorBank(journal, core_num=target.core_num, built_in=built_in, base=base)
