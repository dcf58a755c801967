"""The glossary is the law: names it has retired do not come back in the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_CLASS = re.compile(r"^\s*class (\w+)", re.MULTILINE)
_FUNCTION_OR_FIELD = re.compile(r"^\s*def (\w+)|^    (\w+): ", re.MULTILINE)
# words of plain English, which a function or a field may use in their plain sense
_PLAIN = {
    *("divided", "folds", "gates", "joined", "lasting", "lifted"),
    *("put_back", "quiet", "scopes", "surroundings", "turned", "widened"),
}
_TITLE = "## Names that do not come back"


def _retired() -> frozenset[str]:
    page = (_ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    after = page.partition(_TITLE)[2].splitlines()[1:]
    table = takewhile(lambda line: not line.startswith("## "), after)
    rows = [line.split("|")[1] for line in table if line.startswith("| `")]
    return frozenset(name for row in rows for name in re.findall(r"`(\w+)`", row))


def _names() -> Iterator[tuple[str, Path]]:
    """Yield classes, functions, fields, modules and folders of the product, with their files."""
    for package in ("aoe", "aoebank"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            yield path.stem, path
            yield path.parent.name, path
            text = path.read_text(encoding="utf-8")
            for name in _CLASS.findall(text):
                yield name, path
            for function, field in _FUNCTION_OR_FIELD.findall(text):
                if (function or field) not in _PLAIN:
                    yield function or field, path


def test_retired_names_name_nothing() -> None:
    retired = _retired()
    found = {f"{path.relative_to(_ROOT)}: {name}" for name, path in _names() if name in retired}
    assert not found, f"see docs/glossary.md: {sorted(found)}"


def test_page_retires_names() -> None:
    assert {"Agenda", "Judge", "surroundings", "twin"} <= _retired()
