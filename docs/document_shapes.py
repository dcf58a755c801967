"""The shapes of the documents commands write; `generate_document_schemas.py` makes schemas of them.

A shape is a name of a type (`text?` may be null), a list of one shape, a dict of members (`"name?"`
may be missing), `Each` for members of any name, or a pair of a shape and None: that may be null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Each(NamedTuple):
    """An object whose members have any name, and this shape."""

    shape: object


OTHERS = "*"
"""Name of the shape of members that are not named."""
COUNTS = Each("count")
PLACE = {"path": "text", "line?": "count", "column?": "count", "pointer?": "text"}
ERROR = {"code": "text", "message": "text", "hint?": "text", "variable?": "text"} | {
    f"{name.removesuffix('?')}?": shape for name, shape in PLACE.items()
}
FIX = {
    "path": "text",
    "classes": ["text"],
    "written": "flag",
    "diff": "text",
    "error?": ERROR,
}
SNAPSHOT = {
    "id": "text",
    "parent": "text?",
    "who": "text",
    "time": "text",
    "message": "text",
    "tags": ["text"],
    "environment": "any",
    "soc_versions": "texts?",
    "records": "count",
    "record_set": "text",
}
VERSION = {
    "version": "text",
    "id": "text",
    "parents": ["text"],
    "who": "text",
    "time": "text",
    "message": "text",
    "tags": ["text"],
}
KEPT = {"before": "text?", "after": "text?"}
MOVES = {"added": "count", "removed": "count", "changed": "count"}
MOVE = {"kind": "text", "file": "text", "key": "text"}
EDITED = {"name": "text", "what": "text"}
PROVENANCE = {
    "event": "text",
    "time": "text",
    "engine": "text",
    "fingerprint": "any",
    "model": "any",
    "op_names": ["text"],
    "baseline_us": ["number"],
    "tuned_us": ["number"],
    "speedup": "number?",
    "speedup_low": "number?",
    "speedup_high": "number?",
    "search": "any",
    "extra": "any",
}
# of a quarantine: what is empty is left out, and members of newer programs stay
QUARANTINE_ENTRY = {
    "schema": "text",
    "soc_version?": "text",
    "op_type?": "text",
    "format?": "text",
    "key": "text",
    "strategy_sha256?": "text",
    "reason": "text",
    "ticket?": "text",
    "until?": "text",
    "who": "text",
    "when": "text",
    "evidence?": "text",
}
KEPT_RECORD = {"cost_us": "number?", "sha256": "text", "words?": ["text"], "record": "text"}
DECISION = {
    "theirs_side?": "text",
    "file": "text",
    "key": "text",
    "soc_version": "text?",
    "op_type": "text?",
    "action": "text",
    "reason": "text",
    "workload?": "text",
    "note?": "text",
    "differs?": ["text"],
    "base": (KEPT_RECORD, None),
    "ours": (KEPT_RECORD, None),
    "theirs": (KEPT_RECORD, None),
    "left_out?": [{"side": "text"} | KEPT_RECORD],
}
FIELD = {"pointer": "text", "a?": "any", "b?": "any", "unread?": "text"}
TIMES = {
    "records": "count",
    "mean_ratio": "number",
    "weighted_mean_ratio": "number?",
    "worst_ratio": "number",
}
FOUND_FILE = {"path": "text", "tier": "text", "soc_version": "text?"}
HIT = FOUND_FILE | PLACE | {"key": "text", "cost_us": "number?"}
READER = {
    "name": "text",
    "source": "text",
    "guessed": "flag",
    "explained?": "count",
    "records?": "count",
    "equals?": ["text"],
    "sure?": "flag",
}
PLAN = {
    "scope": "text",
    "dry_run": "flag",
    "settings": [{"key": "text", "before": "text?", "after": "text?", "changed": "flag"}],
    "files": [{"path": "text", "changed": "flag", "diff": ["text"]}],
    "forgotten": ["text"],
}
QUARANTINED = {
    "root": "text",
    "dry_run": "flag",
    "added": [QUARANTINE_ENTRY],
    "removed": [QUARANTINE_ENTRY],
    "left_out": [{"file": "text", "key": "text"}],
    "snapshots": KEPT,
}
ALTERNATIVE = {
    "cost_us": "number?",
    "origin": "text?",
    "workload": "any",
    "strategy": "any",
    "extra": "any",
}
PACK = {
    "message": "text",
    "source": "text",
    "made_by": "text",
    "soc_versions": ["text"],
    "files": [{"name": "text", "sha256": "text", "size_bytes": "count", "records": "count"}],
}
DOCUMENTS: Mapping[str, Mapping[str, object]] = {
    "blame/1": {
        "root": "text",
        "key": "text",
        "records": [
            {
                "file": "text",
                "key": "text",
                "present": "flag",
                "states": [
                    {
                        "move": "text",
                        "version": (VERSION, None),
                        "record": (
                            {"cost_us": "number?", "origin": "text?", "strategy": "any"},
                            None,
                        ),
                    }
                ],
                "provenance": [PROVENANCE],
            }
        ],
    },
    "diff/1": {
        "a": "text",
        "b": "text",
        "unchanged": "count",
        "moved": "count",
        "counts": COUNTS,
        "verdicts": COUNTS,
        "noise_ratio": "number",
        "times": (TIMES, None),
        "rollup": [
            {
                "soc_version": "text?",
                "op_type": "text?",
                "unchanged": "count",
                "moved": "count",
                "counts": COUNTS,
                "slower": "count",
                "faster": "count",
                "times": (TIMES, None),
            }
        ],
        "moves": [
            {
                "a": "text",
                "b": "text",
                "equal": "count",
                "records_a": "count",
                "records_b": "count",
                "similarity": "number",
                "soc_a": "text?",
                "soc_b": "text?",
            }
        ],
        "headers": [{"file": "text", "a": "text", "b": "text"}],
        "not_compared": [ERROR],
        "fail_on_ratio?": "number",
        "regressions?": "count",
        "changes?": [
            {
                "kind": "text",
                "file": "text",
                "file_a?": "text",
                "key": "text",
                "soc_version": "text?",
                "op_type": "text?",
                "workload": "text?",
                "cost_a_us": "number?",
                "cost_b_us": "number?",
                "cost_ratio": "number?",
                "verdict": "text",
                "noise_ratio": "number?",
                "weight": "number?",
                "fields": [FIELD],
                "steps?": [FIELD],
                "problem?": "text",
            }
        ],
        "same_edits?": [
            {
                "records": "count",
                "files": "count",
                "op_type": "text?",
                "example": {"file": "text", "key": "text"},
                "fields": [FIELD],
            }
        ],
    },
    "edit/1": {
        "op": "text",
        "dry_run": "flag",
        "reader": (READER, None),
        "matched": "count",
        "changed": "count",
        "files": [{"path": "text", "records": "count", "matched": "count", "changed": "count"}],
        "fields": [
            {
                "field": "text",
                "records": "count",
                "a?": "any",
                "b?": "any",
                "example": (PLACE, None),
            }
        ],
        "written": ["text"],
    },
    "explain/1": {
        "codes": [
            {
                "code": "text",
                "severity": "text",
                "title": "text",
                "meaning": "text",
                "why": "text",
                "example": "text",
                "way_out": "text",
                "fixed_by": "text?",
            }
        ]
    },
    "git-check/1": {
        "work_tree": "text",
        "files": "count",
        "covered": "count",
        "settings": Each("any"),
        "problems": [
            {
                "code": "text",
                "where": "text",
                "message": "text",
                "hint": "text",
                "paths": ["text"],
            }
        ],
    },
    "git-install/1": PLAN,
    "git-uninstall/1": PLAN,
    "git-verify-merge/1": {
        "merges": [
            {
                "commit": "text",
                "subject": "text",
                "note": "text",
                "files": "count",
                "choices": "count",
                "choices_ours": "count",
                "problems": [
                    {
                        "fault": "text",
                        "path": "text",
                        "line": "count",
                        "key": "text",
                        "message": "text",
                    }
                ],
            }
        ]
    },
    "log/1": {
        "root": "text",
        "kind": "text",
        "versions": [
            VERSION
            | {f"{name}?": shape for name, shape in SNAPSHOT.items() if name not in VERSION}
            | {"moves": MOVES, "socs": COUNTS}
        ],
        "more": "flag",
    },
    "log-verify/1": {
        "root": "text",
        "snapshots": "count",
        "contents": "count",
        "problems": ["text"],
    },
    "ls/1": {
        "root": "text",
        "records": "count",
        "unreadable": [{"path": "text", "problem": "text"}],
        "files": [
            {
                "path": "text",
                "format": "text",
                "soc_version": "text?",
                "targets": ["text"],
                "core_num": "count?",
                "core_type": "text?",
                "op_type": "text?",
                "records": "count",
                "best_speedup": "number?",
                "median_speedup": "number?",
                "keys": ["text"],
                "problem": "text?",
            }
        ],
    },
    "merge/1": {
        "base": "text?",
        "sides": ["text"],
        "dry_run": "flag",
        "files": "count",
        "conflicts": "count",
        "records": {"added": "count", "changed": "count", "removed": "count"},
        "counts": COUNTS,
        "decisions": [DECISION],
        "followed": [{"name": "text", "base": "text", "ours": "text", "theirs": "text"}],
        "hidden": COUNTS,
        "strays": [{"side": "text", "path": "text"}],
        "written": ["text"],
        "conflict_files": ["text"],
        "skipped": [ERROR],
    },
    "merge-conflicts/1": {
        "how_to_settle": "text",
        "git?": {"head": "text", "theirs": "text"},
        "decisions": [DECISION | {"written_sha256": "text?"}],
    },
    "merge-decisions/1": {
        "base_side": "text?",
        "ours_side": "text",
        "how_to_edit": "text",
        "decisions": [DECISION],
    },
    "merge-driver/1": {
        "path": "text",
        "conflict_file": "text?",
        "counts": COUNTS,
        "decisions": [DECISION],
    },
    "merge-settlement/1": {
        "bank": "text",
        "dry_run": "flag",
        "settled": Each("text"),
        "open": ["text"],
        "written": ["text"],
    },
    "prune/1": {
        "dry_run": "flag",
        "pruned": "count",
        "kept": "count",
        "records": [dict.fromkeys(("path", "key", "reason", "detail"), "text")],
        "broken": ["text"],
        "written": ["text"],
    },
    "query/1": {
        "columns": ["text"],
        "rows": [["any"]],
        "broken": [{"path": "text", "problem": "text"}],
        "unreadable": [{"path": "text", "problem": "text"}],
    },
    "quarantine-add/1": QUARANTINED,
    "quarantine-list/1": {
        "root": "text",
        "entries": [QUARANTINE_ENTRY | {"active": "flag", "present_in": ["text"]}],
    },
    "quarantine-rm/1": QUARANTINED,
    "report/1": {
        "sizes": [
            {"bank": "text"}
            | dict.fromkeys(("files", "records", "size_bytes", "broken", "in_quarantine"), "count")
        ],
        "coverage": [
            dict.fromkeys(("bank", "soc_version", "op_type", "format"), "text")
            | {"records": "count", "measured": "count"}
            | dict.fromkeys(("lowest", "median", "highest"), "number?")
        ],
        "ages": [
            dict.fromkeys(("bank", "engine", "cpu_model", "oldest", "newest"), "text")
            | {"records": "count"}
        ],
        "staleness": [
            {
                "bank": "text",
                "fresh": "count",
                "to_check": "count",
                "stale": "count",
                "unknown": "count",
            }
        ],
        "outliers": [
            dict.fromkeys(("bank", "file", "key", "op_type", "why"), "text")
            | {"speedup": "number", "low": "number?", "high": "number?", "computes": "text"}
        ],
        "disagreements": [
            dict.fromkeys(("soc_version", "op_type", "key", "what", "computes"), "text")
            | {
                "opinions": [
                    dict.fromkeys(("where", "time", "strategy_sha256"), "text")
                    | dict.fromkeys(("speedup", "low", "high", "cost_us"), "number?")
                ]
            }
        ],
        "duplicates": [{"bank": "text", "files": ["text"], "records": "count"}],
        "unreadable": [{"path": "text", "problem": "text"}],
    },
    "stale/1": {
        "root": "text",
        **dict.fromkeys(("records", "stale", "to_check", "uncompared"), "count"),
        "found": [
            dict.fromkeys(("path", "key"), "text")
            | dict.fromkeys(("op_type", "soc_version", "measured"), "text?")
            | {"stale": "flag", "hard": ["text"], "soft": ["text"]}
        ],
        "unreadable": [{"path": "text", "problem": "text"}],
    },
    "stats/1": {
        "columns": ["text"],
        "rows": [["any"]],
        "broken": [{"path": "text", "problem": "text"}],
        "unreadable": [{"path": "text", "problem": "text"}],
    },
    "convert/1": {
        "source": "text",
        "output": "text",
        "files": "count",
        "records": "count",
        "left_out": COUNTS,
    },
    "fmt/1": {"check": "flag", "files": [FIX]},
    "hits/1": {
        "counts": [
            {"kind": "text"} | dict.fromkeys(("hit", "missed", "untold"), "count"),
        ],
        "lookups": [
            dict.fromkeys(("source", "kind", "name", "reason", "key", "soc_version"), "text")
            | {"is_hit": "flag?", "line": "count?", "pid": "count?"}
        ],
        "silent": ["text"],
        "records": [
            dict.fromkeys(("bank", "file", "key"), "text")
            | dict.fromkeys(("hits", "perhaps"), "count")
        ],
        "unreadable": [{"path": "text", "problem": "text"}],
    },
    "resolve/1": {
        "soc_version": "text?",
        "core_num": "count?",
        "op_type": "text?",
        "found": "flag",
        "readers": [
            {
                "reader": "text",
                "outcome": "text",
                "writes": "flag",
                "root": "text?",
                "roots?": ["text"],
                "union?": "text",
                "variable": "text?",
                "ignores_custom": "flag",
                "expected": ["text"],
                "files": [FOUND_FILE],
                "tried": [
                    {
                        "variable": "text",
                        "tier": "text",
                        "taken": "flag",
                        "failed": "flag",
                        "path": "text?",
                        "directory": "text?",
                        "reason": "text",
                    }
                ],
                "troubles": [{"effect": "text", "tier": "text", "cann_code": "text?"} | ERROR],
            }
        ],
        "records": [{"reader": "text", "used": (HIT, None), "shadowed": [HIT], "broken": ["text"]}],
        "warnings": [
            {
                "code": "text",
                "message": "text",
                "path": "text?",
                "readers": ["text"],
                "hint": "text",
            }
        ],
    },
    "restore/1": {
        "root": "text",
        "version": VERSION,
        "dry_run": "flag",
        "snapshots": KEPT,
        "files": [EDITED],
        "unknown": ["text"],
        "records": [MOVE],
        "kept_out": [{"file": "text", "key": "text", "reason": "text"}],
    },
    "revert/1": {
        "root": "text",
        "version": VERSION,
        "dry_run": "flag",
        "snapshots": KEPT,
        "files": [EDITED],
        "already": "count",
        "records": [MOVE],
        "conflicts": [
            {
                "file": "text",
                "key": "text",
                "reason": "text",
                "before": "text?",
                "version": "text?",
                "now": "text?",
            }
        ],
    },
    "schema-import/1": {"name": "text", "source": "text", "operators": Each("any")},
    "merge-page/1": {"bank": "text", "conflicts": "count"},
    "schema-list/1": {"releases": [{"name": "text", "source": "text", "operators": ["text"]}]},
    "show/1": {
        "records": [
            {"key": "text", "format": "text", "soc_version": "text?", "op_type": "text?"}
            | ALTERNATIVE
            | {
                "names": Each("text"),
                "words": {"computes": "text", "strategy": ["text"]},
                "unread": Each("text"),
                "alternatives": [ALTERNATIVE],
                "location": (PLACE, None),
                "provenance": [PROVENANCE],
            }
        ],
        "misses": [{"selector": "text", "reason": "text", "keys": ["text"]}],
    },
    "pack/1": PACK
    | {
        "pack": "text",
        "size_bytes": "count",
        "sha256": "text",
        "signed": "flag",
        "records": "count",
    },
    "pack_manifest/1": PACK,
    "snapshot/1": {
        "root": "text",
        "dry_run": "flag",
        "moves": MOVES,
        "new?": "flag",
        "snapshot?": SNAPSHOT,
        "tag?": "text?",
        "broken?": ["text"],
        "in_git?": "flag",
        "files?": [{"name": "text", "sha256": "text", "records": "count?", "record_set": "text?"}],
    },
    "tag/1": {
        "root": "text",
        "tags": Each("text"),
        "name": "text?",
        "snapshot": "text?",
        "removed": "flag",
    },
    "textconv/1": {"format": "text", "records": "count", "text": "text"},
    "unpack/1": PACK
    | {
        "pack": "text",
        "root": "text?",
        "signed": "flag",
        "signer": "text?",
        "records": "count",
    },
    "validate/1": {
        "files": "count",
        "records": "count",
        "passed_over": "count",
        "known": "count",
        "reader": READER,
        "counts": COUNTS,
        "fail_on": "text",
        "findings": [
            {"code": "text", "severity": "text", "title": "text", "message": "text"}
            | PLACE
            | {"got?": "text", "expected?": "text", "hint?": "text", "key?": "text"}
        ],
        "fixes?": [FIX],
    },
}
LINES = {"quarantine_entry/1": QUARANTINE_ENTRY}
FILES = ("merge-conflicts/1", "merge-decisions/1", "pack_manifest/1", "schema-import/1")
