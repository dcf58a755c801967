"""The shapes of the documents `aoe` writes, see `document_shapes.py`; names have the program."""

from __future__ import annotations

from collections.abc import Mapping

DOCUMENTS: Mapping[str, Mapping[str, object]] = {
    "aoe.doctor/1": {
        "ready": "flag",
        "settings": [
            {
                "name": "text",
                "value": "text",
                "source": "text",
                "place": "text",
                "option": "text",
                "file_key": "text",
                "variable": "text",
                "valid": "flag",
            }
        ],
        "checks": [{"name": "text", "verdict": "text", "found": "text", "advice": "text"}],
    },
    "aoe.verify/1": {
        "bank": "text",
        "soc_version": "text",
        "core_num": "count",
        "holds": "flag",
        "dry_run": "flag",
        "left": "count",
        "records": [
            {
                "file": "text",
                "key": "text",
                "op_type": "text",
                "op_names": ["text"],
                "verdict": "text",
                "reason": "text",
                "recorded_speedup": ("number", None),
                "recorded_low": ("number", None),
                "recorded_time": ("text", None),
                "recorded_by": ("text", None),
                "drift": ["text"],
                "speedup": ("number", None),
                "speedup_low": ("number", None),
                "speedup_high": ("number", None),
                "pairs": "count",
                "written": "flag",
            }
        ],
        "passed_over": [{"file": "text", "key": "text", "reason": "text"}],
    },
}
