"""Tuning knowledge banks as files and records: resolve, read, check, compare, write.

This is the whole public API. Names are imported on first use, so `import aoebank` is free.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoebank.errors import AoebankError, BankFormatError, BankLockedError, BankNotFoundError
    from aoebank.errors import BankPathError, BankPermissionError, RecordError  # isort: skip
    from aoebank.formats.gradient.format import make_gradient_record
    from aoebank.formats.unified.format import make_unified_record, workload_key
    from aoebank.model.codes import Severity
    from aoebank.model.finding import Finding
    from aoebank.model.json_value import JsonObject, JsonValue
    from aoebank.model.provenance import Event, Provenance
    from aoebank.model.quarantine import Quarantine
    from aoebank.model.record import Alternative, Record
    from aoebank.model.resolution import Reader, Resolution, Tier
    from aoebank.storage.bank import Bank
    from aoebank.storage.quarantine import load_quarantine
    from aoebank.storage.readers.environment import current_environment, resolve_bank

    __version__: str

__all__ = [
    "Alternative",
    "AoebankError",
    "Bank",
    "BankFormatError",
    "BankLockedError",
    "BankNotFoundError",
    "BankPathError",
    "BankPermissionError",
    "Event",
    "Finding",
    "JsonObject",
    "JsonValue",
    "Provenance",
    "Quarantine",
    "Reader",
    "Record",
    "RecordError",
    "Resolution",
    "Severity",
    "Tier",
    "__version__",
    "current_environment",
    "load_quarantine",
    "make_gradient_record",
    "make_unified_record",
    "resolve_bank",
    "workload_key",
]

_HOMES = {
    "formats.gradient.format": ("make_gradient_record",),
    "formats.unified.format": ("make_unified_record", "workload_key"),
    "model.codes": ("Severity",),
    "model.finding": ("Finding",),
    "model.json_value": ("JsonObject", "JsonValue"),
    "model.provenance": ("Event", "Provenance"),
    "model.quarantine": ("Quarantine",),
    "model.record": ("Alternative", "Record"),
    "model.resolution": ("Reader", "Resolution", "Tier"),
    "storage.bank": ("Bank",),
    "storage.quarantine": ("load_quarantine",),
    "storage.readers.environment": ("current_environment", "resolve_bank"),
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("aoebank")
    if name not in __all__:
        raise AttributeError(f"module 'aoebank' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "errors")
    return getattr(import_module(f"aoebank.{home}"), name)
