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
}
