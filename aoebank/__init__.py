"""Tuning knowledge banks as files and records: resolve, read, check, compare, merge, write.

This is the whole public API; what a command does is the function of that name. What a parameter
means stands beside it, in the `Param` of its annotation, which is the help of the command too.
Names are imported on first use, so `import aoebank` is free.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoebank.diffing.api import diff, textconv
    from aoebank.diffing.result import DiffResult
    from aoebank.editing.api import edit, prune
    from aoebank.editing.edit import EditResult
    from aoebank.editing.prune import PruneResult
    from aoebank.errors import (
        AoebankError,
        BankFormatError,
        BankLockedError,
        BankNotFoundError,
        BankPathError,
        BankPermissionError,
        HistoryError,
        MissingPackageError,
        RecordError,
        UsageError,
    )
    from aoebank.formats.gradient.format import make_gradient_record
    from aoebank.formats.graph.format import make_graph_record
    from aoebank.formats.release import Release
    from aoebank.formats.text.engine_words import step_words
    from aoebank.formats.unified.format import make_unified_record, workload_key
    from aoebank.formats.words import RecordWords, words_of
    from aoebank.git.api import (
        git_check,
        git_install,
        git_uninstall,
        git_verify_merge,
        merge_driver,
    )
    from aoebank.git.check import CheckResult
    from aoebank.git.driver import DriverOutcome
    from aoebank.git.install import InstallPlan
    from aoebank.history.api import blame, log, restore, revert, snapshot, tag, verify_history
    from aoebank.history.blame import BlameResult
    from aoebank.history.log import LogResult, VerifyResult
    from aoebank.history.restore import RestoreResult, RevertResult
    from aoebank.history.snapshot import SnapshotResult, TagResult
    from aoebank.merging.api import merge, settle
    from aoebank.merging.document import Settlement
    from aoebank.merging.run import MergeResult
    from aoebank.model.codes import Severity
    from aoebank.model.display import RichDisplay
    from aoebank.model.finding import Finding
    from aoebank.model.fingerprint import Drift, compare_fingerprints
    from aoebank.model.json_value import JsonObject, JsonValue
    from aoebank.model.merge_verdict import MergeVerdict
    from aoebank.model.provenance import Event, Provenance, last_measured
    from aoebank.model.quarantine import Quarantine
    from aoebank.model.record import Alternative, Record
    from aoebank.model.resolution import Reader, Resolution, Tier
    from aoebank.parameters.command import as_option, command_parameters
    from aoebank.parameters.param import DOCUMENTS, Completes, Param
    from aoebank.program import CommandGroup, Program, run_program
    from aoebank.quarantine.api import quarantine_add, quarantine_list, quarantine_remove
    from aoebank.quarantine.run import ListedEntry, QuarantineResult
    from aoebank.reading.api import hits, list_bank, overview, query, show, stats
    from aoebank.reading.hits import HitsResult
    from aoebank.reading.ls import ListResult
    from aoebank.reading.overview import OverviewResult
    from aoebank.reading.query import QueryResult
    from aoebank.reading.show import ShowResult
    from aoebank.report.answer_page import html_answer
    from aoebank.report.documents import JSON_PRINTED, asked_documents, emit
    from aoebank.report.html import page_environment
    from aoebank.report.output import (
        Column,
        Report,
        Text,
        make_console,
        members,
        note_warning,
        plural,
        say,
        size_text,
    )
    from aoebank.report.scale import Scale
    from aoebank.resolving.api import resolve
    from aoebank.resolving.run import ResolveResult
    from aoebank.shipping.api import convert, pack, unpack
    from aoebank.shipping.convert import ConvertResult
    from aoebank.shipping.pack import PackResult, UnpackResult
    from aoebank.storage.bank import Bank
    from aoebank.storage.machine import present_facts
    from aoebank.storage.quarantine import load_quarantine
    from aoebank.storage.readers.environment import current_environment, resolve_bank
    from aoebank.storage.readers.soc_versions import old_soc_versions
    from aoebank.storage.readers.toolkit import CannSearch, find_cann_program, find_toolkit
    from aoebank.storage.signing import find_signer, sign_data
    from aoebank.storage.spare import BankWithSpare, SpareBank
    from aoebank.storage.union import UnionBank
    from aoebank.validation.api import (
        explain,
        fix,
        fmt,
        schema_import,
        schema_list,
        stale,
        validate,
    )
    from aoebank.validation.explain import Explanation
    from aoebank.validation.fix import FixOutcome
    from aoebank.validation.run import ValidateResult
    from aoebank.validation.stale import StaleRecord, StaleResult

    __version__: str

__all__ = [
    "DOCUMENTS",
    "JSON_PRINTED",
    "Alternative",
    "AoebankError",
    "Bank",
    "BankFormatError",
    "BankLockedError",
    "BankNotFoundError",
    "BankPathError",
    "BankPermissionError",
    "BankWithSpare",
    "BlameResult",
    "CannSearch",
    "CheckResult",
    "Column",
    "CommandGroup",
    "Completes",
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
    "MergeResult",
    "MergeVerdict",
    "MissingPackageError",
    "OverviewResult",
    "PackResult",
    "Param",
    "Program",
    "Provenance",
    "PruneResult",
    "Quarantine",
    "QuarantineResult",
    "QueryResult",
    "Reader",
    "Record",
    "RecordError",
    "RecordWords",
    "Release",
    "Report",
    "Resolution",
    "ResolveResult",
    "RestoreResult",
    "RevertResult",
    "RichDisplay",
    "Scale",
    "Settlement",
    "Severity",
    "ShowResult",
    "SnapshotResult",
    "SpareBank",
    "StaleRecord",
    "StaleResult",
    "TagResult",
    "Text",
    "Tier",
    "UnionBank",
    "UnpackResult",
    "UsageError",
    "ValidateResult",
    "VerifyResult",
    "__version__",
    "as_option",
    "asked_documents",
    "blame",
    "command_parameters",
    "compare_fingerprints",
    "convert",
    "current_environment",
    "diff",
    "edit",
    "emit",
    "explain",
    "find_cann_program",
    "find_signer",
    "find_toolkit",
    "fix",
    "fmt",
    "git_check",
    "git_install",
    "git_uninstall",
    "git_verify_merge",
    "hits",
    "html_answer",
    "last_measured",
    "list_bank",
    "load_quarantine",
    "log",
    "make_console",
    "make_gradient_record",
    "make_graph_record",
    "make_unified_record",
    "members",
    "merge",
    "merge_driver",
    "note_warning",
    "old_soc_versions",
    "overview",
    "pack",
    "page_environment",
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
    "step_words",
    "tag",
    "textconv",
    "unpack",
    "validate",
    "verify_history",
    "words_of",
    "workload_key",
]

_HOMES = {  # modules below `aoebank`, with the names they have
    "diffing.api": "diff textconv",
    "diffing.result": "DiffResult",
    "editing.api": "edit prune",
    "editing.edit": "EditResult",
    "editing.prune": "PruneResult",
    "errors": "AoebankError BankFormatError BankLockedError BankNotFoundError BankPathError "
    "BankPermissionError HistoryError MissingPackageError RecordError UsageError",
    "formats.gradient.format": "make_gradient_record",
    "formats.graph.format": "make_graph_record",
    "formats.release": "Release",
    "formats.text.engine_words": "step_words",
    "formats.unified.format": "make_unified_record workload_key",
    "formats.words": "RecordWords words_of",
    "git.api": "git_check git_install git_uninstall git_verify_merge merge_driver",
    "git.check": "CheckResult",
    "git.driver": "DriverOutcome",
    "git.install": "InstallPlan",
    "history.api": "blame log restore revert snapshot tag verify_history",
    "history.blame": "BlameResult",
    "history.log": "LogResult VerifyResult",
    "history.restore": "RestoreResult RevertResult",
    "history.snapshot": "SnapshotResult TagResult",
    "merging.api": "merge settle",
    "merging.document": "Settlement",
    "merging.run": "MergeResult",
    "model.codes": "Severity",
    "model.display": "RichDisplay",
    "model.finding": "Finding",
    "model.fingerprint": "Drift compare_fingerprints",
    "model.json_value": "JsonObject JsonValue",
    "model.merge_verdict": "MergeVerdict",
    "model.provenance": "Event Provenance last_measured",
    "model.quarantine": "Quarantine",
    "model.record": "Alternative Record",
    "model.resolution": "Reader Resolution Tier",
    "parameters.command": "as_option command_parameters",
    "parameters.param": "Completes DOCUMENTS Param",
    "program": "CommandGroup Program run_program",
    "quarantine.api": "quarantine_add quarantine_list quarantine_remove",
    "quarantine.run": "ListedEntry QuarantineResult",
    "reading.api": "hits list_bank overview query show stats",
    "reading.hits": "HitsResult",
    "reading.ls": "ListResult",
    "reading.overview": "OverviewResult",
    "reading.query": "QueryResult",
    "reading.show": "ShowResult",
    "report.answer_page": "html_answer",
    "report.documents": "JSON_PRINTED asked_documents emit",
    "report.html": "page_environment",
    "report.output": "Column Report Text make_console members note_warning plural say size_text",
    "report.scale": "Scale",
    "resolving.api": "resolve",
    "resolving.run": "ResolveResult",
    "shipping.api": "convert pack unpack",
    "shipping.convert": "ConvertResult",
    "shipping.pack": "PackResult UnpackResult",
    "storage.bank": "Bank",
    "storage.machine": "present_facts",
    "storage.quarantine": "load_quarantine",
    "storage.readers.environment": "current_environment resolve_bank",
    "storage.readers.soc_versions": "old_soc_versions",
    "storage.readers.toolkit": "CannSearch find_cann_program find_toolkit",
    "storage.signing": "find_signer sign_data",
    "storage.spare": "BankWithSpare SpareBank",
    "storage.union": "UnionBank",
    "validation.api": "explain fix fmt schema_import schema_list stale validate",
    "validation.explain": "Explanation",
    "validation.fix": "FixOutcome",
    "validation.run": "ValidateResult",
    "validation.stale": "StaleRecord StaleResult",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("aoebank")
    home = next((home for home, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module 'aoebank' has no attribute {name!r}")
    return getattr(import_module(f"aoebank.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__]
