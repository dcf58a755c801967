"""Documents of commands against their published schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).resolve().parents[2] / "aoebank" / "schemas" / "documents"


def find_faults(document: Mapping[str, Any]) -> list[str]:
    """Return where a document does not fit the schema of its name."""
    name = str(document.get("schema")).removeprefix("aoebank.").replace("/", "-")
    return [
        f"{error.json_path}: {error.message[:200]}"
        for top in _validator(name).iter_errors(document)
        for error in (top, *(top.context or ()))
    ]


def check_output(text: str) -> None:
    """Raise if what a command wrote is one of our documents and does not fit."""
    if not text.startswith('{\n  "schema": "aoebank.'):
        return
    document = json.loads(text)
    if document["schema"] == "aoebank.error/1":
        return  # no command was named
    faults = find_faults(document)
    assert not faults, (document["schema"], faults)


@cache
def _validator(name: str) -> Draft202012Validator:
    path = FOLDER / f"{name}.json"
    assert path.is_file(), f"no schema of {name}"
    return Draft202012Validator(json.loads(path.read_bytes()))
