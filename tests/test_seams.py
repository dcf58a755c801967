"""Tests go through public seams, so that a file can move without breaking a test.

A test that replaces a part of the product gives the replacement as an argument. What cannot be
given (a system call that fails, a terminal that is none) may still be patched, in few places.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PACKAGES = ("aoe", "aoebank")
MOST_PATCHES = 80
PATCH, PRIVATE = r"\.setattr\(", r"(?<!self)(?<!cls)\._[a-zA-Z]|import [^\n]*\b_\w|^    _\w+,$"
PUBLIC_IN_PYTHON = {"_exit", "_replace", "_asdict", "_fields", "_fields_", "_make"}
"""Names of the standard library that begin with an underscore and are documented."""


def _trees(sign: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the files that may hold something, by a sign of it: to parse them all takes long."""
    for file in sorted(ROOT.rglob("*.py")):
        text = file.read_text()
        if re.search(sign, text, re.MULTILINE):
            yield str(file.relative_to(ROOT)), ast.parse(text)


def test_parts_of_the_product_are_given_not_patched() -> None:
    patches = Counter(file for file, tree in _trees(PATCH) for _ in _patches(tree))
    assert patches.total() < MOST_PATCHES, patches.most_common()


def _patches(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="object"))):
                continue  # a frozen value sets its own attributes so
            case ast.Call(func=ast.Attribute(attr="setattr")):
                yield node.lineno


def test_no_private_name_of_the_product_is_used() -> None:
    used = [
        f"{file}:{line}: {name}"
        for file, tree in _trees(PRIVATE)
        for line, name in _private_names(tree)
    ]
    assert not used, "\n".join(used)


def _private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield private names a file imports, or takes from something that is not its own object."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    own |= set(_assigned(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield from ((node.lineno, alias.name) for alias in node.names if _private(alias.name))
        elif isinstance(node, ast.Attribute) and _private(node.attr):
            of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not of_itself and node.attr not in PUBLIC_IN_PYTHON | own:
                yield node.lineno, node.attr


def _assigned(tree: ast.Module) -> Iterator[str]:
    """Yield attributes that classes of the file set on themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
