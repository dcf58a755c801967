"""Tuning knowledge banks as files and records: resolve, read, check, compare, merge, write.

This is the whole public API; what a command does is the function of that name. Names are
imported on first use, so `import aoebank` is free.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoebank.api.checking import (
        explain,
        fix,
        fmt,
        schema_import,
        schema_list,
        stale,
        validate,
    )
    from aoebank.api.comparing import diff, textconv
    from aoebank.api.editing import edit, prune
    from aoebank.api.git import (
        git_check,
        git_install,
        git_uninstall,
        git_verify_merge,
        merge_driver,
    )
    from aoebank.api.merging import merge, settle
    from aoebank.api.quarantine import quarantine_add, quarantine_list, quarantine_remove
    from aoebank.api.reading import hits, list_bank, overview, query, resolve, show, stats
    from aoebank.api.shipping import convert, pack, unpack
    from aoebank.api.versions import blame, log, restore, revert, snapshot, tag, verify_history
    from aoebank.cli.errors import Program, run_program
    from aoebank.cli.loading import CommandGroup
    from aoebank.errors import (
        AoebankError,
        BankFormatError,
        BankLockedError,
        BankNotFoundError,
        BankPathError,
        BankPermissionError,
        HistoryError,
        RecordError,
        UsageError,
    )
    from aoebank.formats.gradient.format import make_gradient_record
    from aoebank.formats.graph.format import make_graph_record
    from aoebank.formats.release import Release
    from aoebank.formats.unified.format import make_unified_record, workload_key
    from aoebank.model.codes import Severity
    from aoebank.model.finding import Finding
    from aoebank.model.fingerprint import Drift, compare_fingerprints
    from aoebank.model.json_value import JsonObject, JsonValue
    from aoebank.model.merge_verdict import MergeVerdict
    from aoebank.model.provenance import Event, Provenance, last_measured
    from aoebank.model.quarantine import Quarantine
    from aoebank.model.record import Alternative, Record
    from aoebank.model.resolution import Reader, Resolution, Tier
    from aoebank.ops.convert.run import ConvertResult
    from aoebank.ops.diff.result import DiffResult
    from aoebank.ops.edit.run import EditResult
    from aoebank.ops.git.check import CheckResult
    from aoebank.ops.git.driver import DriverOutcome
    from aoebank.ops.git.install import InstallPlan
    from aoebank.ops.history.blame import BlameResult
    from aoebank.ops.history.log import LogResult
    from aoebank.ops.history.restore import RestoreResult
    from aoebank.ops.history.revert import RevertResult
    from aoebank.ops.history.snapshot import SnapshotResult
    from aoebank.ops.history.tag import TagResult
    from aoebank.ops.history.verify import VerifyResult
    from aoebank.ops.hits.result import HitsResult
    from aoebank.ops.ls import ListResult
    from aoebank.ops.merge.run import MergeResult
    from aoebank.ops.merge.settle import Settlement
    from aoebank.ops.overview.result import OverviewResult
    from aoebank.ops.pack.run import PackResult
    from aoebank.ops.pack.unpack import UnpackResult
    from aoebank.ops.prune.run import PruneResult
    from aoebank.ops.quarantine import ListedEntry, QuarantineResult
    from aoebank.ops.query.run import QueryResult
    from aoebank.ops.resolve.run import ResolveResult
    from aoebank.ops.show import ShowResult
    from aoebank.ops.stale import StaleRecord, StaleResult
    from aoebank.ops.validate.explain import Explanation
    from aoebank.ops.validate.fix import FixOutcome
    from aoebank.ops.validate.run import ValidateResult
    from aoebank.report import html as pages
    from aoebank.report.html import Markup, element, html_page, join
    from aoebank.report.output import Report, Text, emit, make_console, plural, say
    from aoebank.report.sizes import size_text
    from aoebank.storage.bank import Bank
    from aoebank.storage.machine import present_facts
    from aoebank.storage.quarantine import load_quarantine
    from aoebank.storage.readers.environment import current_environment, resolve_bank
    from aoebank.storage.readers.soc_versions import old_soc_versions
    from aoebank.storage.readers.toolkit import CannSearch, find_cann_aoe, find_toolkit
    from aoebank.storage.signing import find_signer, sign_data

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
    "BlameResult",
    "CannSearch",
    "CheckResult",
    "CommandGroup",
    "ConvertResult",
    "DiffResult",
    "Drift",
    "DriverOutcome",
    "EditResult",
    "Event",
    "Explanation",
    "Finding",
    "FixOutcome",
    "HistoryError",
    "HitsResult",
    "InstallPlan",
    "JsonObject",
    "JsonValue",
    "ListResult",
    "ListedEntry",
    "LogResult",
    "Markup",
    "MergeResult",
    "MergeVerdict",
    "OverviewResult",
    "PackResult",
    "Program",
    "Provenance",
    "PruneResult",
    "Quarantine",
    "QuarantineResult",
    "QueryResult",
    "Reader",
    "Record",
    "RecordError",
    "Release",
    "Report",
    "Resolution",
    "ResolveResult",
    "RestoreResult",
    "RevertResult",
    "Settlement",
    "Severity",
    "ShowResult",
    "SnapshotResult",
    "StaleRecord",
    "StaleResult",
    "TagResult",
    "Text",
    "Tier",
    "UnpackResult",
    "UsageError",
    "ValidateResult",
    "VerifyResult",
    "__version__",
    "blame",
    "compare_fingerprints",
    "convert",
    "current_environment",
    "diff",
    "edit",
    "element",
    "emit",
    "explain",
    "find_cann_aoe",
    "find_signer",
    "find_toolkit",
    "fix",
    "fmt",
    "git_check",
    "git_install",
    "git_uninstall",
    "git_verify_merge",
    "hits",
    "html_page",
    "join",
    "last_measured",
    "list_bank",
    "load_quarantine",
    "log",
    "make_console",
    "make_gradient_record",
    "make_graph_record",
    "make_unified_record",
    "merge",
    "merge_driver",
    "old_soc_versions",
    "overview",
    "pack",
    "pages",
    "plural",
    "present_facts",
    "prune",
    "quarantine_add",
    "quarantine_list",
    "quarantine_remove",
    "query",
    "resolve",
    "resolve_bank",
    "restore",
    "revert",
    "run_program",
    "say",
    "schema_import",
    "schema_list",
    "settle",
    "show",
    "sign_data",
    "size_text",
    "snapshot",
    "stale",
    "stats",
    "tag",
    "textconv",
    "unpack",
    "validate",
    "verify_history",
    "workload_key",
]

_HOMES = {
    "api.checking": (
        "explain",
        "fix",
        "fmt",
        "schema_import",
        "schema_list",
        "stale",
        "validate",
    ),
    "api.comparing": (
        "diff",
        "textconv",
    ),
    "api.editing": ("edit", "prune"),
    "api.git": (
        "git_check",
        "git_install",
        "git_uninstall",
        "git_verify_merge",
        "merge_driver",
    ),
    "api.merging": (
        "merge",
        "settle",
    ),
    "api.quarantine": (
        "quarantine_add",
        "quarantine_list",
        "quarantine_remove",
    ),
    "api.reading": (
        "hits",
        "list_bank",
        "overview",
        "query",
        "resolve",
        "show",
        "stats",
    ),
    "api.shipping": ("convert", "pack", "unpack"),
    "api.versions": (
        "blame",
        "log",
        "restore",
        "revert",
        "snapshot",
        "tag",
        "verify_history",
    ),
    "cli.errors": ("Program", "run_program"),
    "cli.loading": ("CommandGroup",),
    "errors": (
        "AoebankError",
        "BankFormatError",
        "BankLockedError",
        "BankNotFoundError",
        "BankPathError",
        "BankPermissionError",
        "HistoryError",
        "RecordError",
        "UsageError",
    ),
    "formats.release": ("Release",),
    "formats.gradient.format": ("make_gradient_record",),
    "formats.graph.format": ("make_graph_record",),
    "formats.unified.format": (
        "make_unified_record",
        "workload_key",
    ),
    "model.codes": ("Severity",),
    "model.finding": ("Finding",),
    "model.fingerprint": ("Drift", "compare_fingerprints"),
    "model.json_value": (
        "JsonObject",
        "JsonValue",
    ),
    "model.merge_verdict": ("MergeVerdict",),
    "model.provenance": (
        "Event",
        "Provenance",
        "last_measured",
    ),
    "model.quarantine": ("Quarantine",),
    "model.record": (
        "Alternative",
        "Record",
    ),
    "model.resolution": (
        "Reader",
        "Resolution",
        "Tier",
    ),
    "ops.convert.run": ("ConvertResult",),
    "ops.diff.result": ("DiffResult",),
    "ops.edit.run": ("EditResult",),
    "ops.git.check": ("CheckResult",),
    "ops.git.driver": ("DriverOutcome",),
    "ops.git.install": ("InstallPlan",),
    "ops.history.blame": ("BlameResult",),
    "ops.history.log": ("LogResult",),
    "ops.history.restore": ("RestoreResult",),
    "ops.history.revert": ("RevertResult",),
    "ops.history.snapshot": ("SnapshotResult",),
    "ops.history.tag": ("TagResult",),
    "ops.history.verify": ("VerifyResult",),
    "ops.hits.result": ("HitsResult",),
    "ops.ls": ("ListResult",),
    "ops.merge.run": ("MergeResult",),
    "ops.merge.settle": ("Settlement",),
    "ops.overview.result": ("OverviewResult",),
    "ops.pack.run": ("PackResult",),
    "ops.pack.unpack": ("UnpackResult",),
    "ops.quarantine": (
        "ListedEntry",
        "QuarantineResult",
    ),
    "ops.prune.run": ("PruneResult",),
    "ops.query.run": ("QueryResult",),
    "ops.resolve.run": ("ResolveResult",),
    "ops.show": ("ShowResult",),
    "ops.stale": ("StaleRecord", "StaleResult"),
    "ops.validate.explain": ("Explanation",),
    "ops.validate.fix": ("FixOutcome",),
    "ops.validate.run": ("ValidateResult",),
    "report.html": ("Markup", "element", "html_page", "join"),
    "report.output": ("Report", "Text", "emit", "make_console", "plural", "say"),
    "report.sizes": ("size_text",),
    "storage.bank": ("Bank",),
    "storage.machine": ("present_facts",),
    "storage.quarantine": ("load_quarantine",),
    "storage.readers.environment": (
        "current_environment",
        "resolve_bank",
    ),
    "storage.readers.soc_versions": ("old_soc_versions",),
    "storage.readers.toolkit": ("CannSearch", "find_cann_aoe", "find_toolkit"),
    "storage.signing": ("find_signer", "sign_data"),
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("aoebank")
    if name == "pages":
        return import_module("aoebank.report.html")
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'aoebank' has no attribute {name!r}")
    return getattr(import_module(f"aoebank.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__]
