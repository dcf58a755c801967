"""Tuning knowledge banks as files and records: resolve, read, check, compare, write.

This is the whole public API. Names are imported on first use, so `import aoebank` is free.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoebank.errors import (
        AoebankError,
        BankFormatError,
        BankLockedError,
        BankNotFoundError,
        BankPathError,
        BankPermissionError,
        RecordError,
    )
    from aoebank.formats.unified import make_unified_record, workload_key
    from aoebank.model.codes import Severity
    from aoebank.model.finding import Finding
    from aoebank.model.json_value import JsonObject, JsonValue
    from aoebank.model.provenance import Event, Provenance
    from aoebank.model.record import Alternative, Record
    from aoebank.model.resolution import Reader, Resolution, Tier
    from aoebank.storage.bank import Bank
    from aoebank.storage.tiers import current_environment, resolve_bank

    __version__: str

__all__ = [
    "Alternative", "AoebankError", "Bank", "BankFormatError", "BankLockedError",
    "BankNotFoundError", "BankPathError", "BankPermissionError", "Event", "Finding",
    "JsonObject", "JsonValue", "Provenance", "Reader", "Record", "RecordError", "Resolution",
    "Severity", "Tier", "__version__", "current_environment", "make_unified_record",
    "resolve_bank", "workload_key",
]  # fmt: skip

_HOMES = {
    "formats.unified": ("make_unified_record", "workload_key"),
    "model.codes": ("Severity",),
    "model.finding": ("Finding",),
    "model.json_value": ("JsonObject", "JsonValue"),
    "model.provenance": ("Event", "Provenance"),
    "model.record": ("Alternative", "Record"),
    "model.resolution": ("Reader", "Resolution", "Tier"),
    "storage.bank": ("Bank",),
    "storage.tiers": ("current_environment", "resolve_bank"),
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("aoebank")
    if name not in __all__:
        raise AttributeError(f"module 'aoebank' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "errors")
    return getattr(import_module(f"aoebank.{home}"), name)
