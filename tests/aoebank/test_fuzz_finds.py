"""Mutated bank files on which commands once failed, where they are at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import sample_bank_files as samples
from support.mutated_banks import check_commands, check_quiet

FOLDER = Path(
    os.environ.get("AOEBANK_FUZZ_FINDS") or samples.ROOT.parent / "shared" / "data" / "fuzz_finds"
)
WHOLE = {path.name: path for path in samples.ALL}


def _finds() -> Iterator[Any]:
    """Yield the finds; every day the first of each kind of fault and of each file will do."""
    listing = FOLDER / "finds.json"
    if not listing.is_file():
        return
    seen: set[str] = set()
    for find in json.loads(listing.read_bytes()):
        file = FOLDER / find["folder"] / find["file"]
        is_first = not seen >= {find["kind"], find["file"]}
        seen |= {find["kind"], find["file"]}
        marks = () if is_first else pytest.mark.slow
        yield pytest.param(find["args"], file.absolute(), id=find["folder"], marks=marks)


@pytest.mark.parametrize(("arguments", "file"), [*_finds()])
def test_find_is_none_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], file: Path
) -> None:
    """`a` has the file as it was before it was mutated, `b` as it is."""
    monkeypatch.chdir(tmp_path)
    whole = WHOLE[file.name].read_bytes() if file.name in WHOLE else None
    check_commands(tmp_path, whole, file.read_bytes(), file.name)
    if arguments[:1] == ["merge"]:
        check_quiet(arguments)
