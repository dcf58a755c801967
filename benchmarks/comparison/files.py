"""Whole files or none."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_whole(file: Path, text: str) -> None:
    """Replace a file so that a reader, or a crash, meets the old text or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_document(file: Path, document: Mapping[str, Any]) -> None:
    """Replace a file by JSON with a line for each measurement, so that a diff shows which are new.

    Args:
        file: The file.
        document: Its members that are lists or mappings have a line for each of their own members.
    """
    members = (f"{json.dumps(name)}: {_lines(value)}" for name, value in document.items())
    write_whole(file, "{\n" + ",\n".join(members) + "\n}\n")


def _lines(value: Any) -> str:
    if isinstance(value, Mapping) and value:
        members = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
        return "{\n" + ",\n".join(members) + "\n}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)
