"""`aoebank textconv`: plain text, without a report around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoebank.report.output import write_document, write_text
from aoebank.storage.bank import load_file


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> int:
    """Write a bank file as text: git takes it as it is."""
    text = call()
    if given["as_json"]:
        parsed = load_file(given["file"])
        facts = {"format": str(parsed.format.name), "records": len(parsed), "text": text}
        write_document({"schema": "aoebank.textconv/1", **facts})
    else:
        write_text(text)
    return 0
