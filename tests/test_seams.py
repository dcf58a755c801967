"""Tests go through public seams, so that a file can move without breaking a test.

A test that replaces a part of the product gives the replacement as an argument. What cannot be
given (a system call that fails, a terminal that is none) may still be patched, in few places. A
test imports what a user or another folder of the product imports, or belongs to the folder.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PACKAGES = ("aoe", "aoebank")
PUBLIC = re.compile(r"(aoe|aoebank)(\.\w+|\.testing\.\w+)?")
"""What a user imports from: `aoe`, `aoe.errors`, `aoe.torch`, `aoebank.testing.factories`."""
IMPORT = re.compile(
    r"^ *(?:from ((?:aoe|aoebank)[\w.]*) import (\([^)]*\)|.*)|import ((?:aoe|aoebank)\b.*))",
    re.MULTILINE,
)
MOST_PATCHES = 80
PATCH, PRIVATE = r"\.setattr\(", r"(?<!self)(?<!cls)\._[a-zA-Z]|import [^\n]*\b_\w|^    _\w+,$"
PUBLIC_IN_PYTHON = {"_repr_html_", "_exit", "_replace", "_asdict", "_fields", "_fields_", "_make"}
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


# ---- inner modules ----


def test_inner_modules_are_imported_by_tests_of_their_own_folder_only() -> None:
    """So a module that only its own folder uses can move, and break no other tests."""
    found = [
        f"{file}: {module} is used by its own folder only"
        for file, module in _inner_imports(ROOT.parent)
    ]
    way_out = "use a public name or command, a fake as an argument, or move the test to its mirror"
    assert not found, "\n".join([*found, way_out])


def test_an_import_of_an_inner_module_is_found_and_that_of_an_interface_is_not(
    tmp_path: Path,
) -> None:
    files = {
        "aoe/errors.py": "",
        "aoe/a/__init__.py": "",
        "aoe/a/inner.py": "",
        "aoe/a/interface.py": "from aoe.a import inner\n",
        "aoe/b/__init__.py": "",
        "aoe/b/user.py": "from aoe.a.interface import (\n    one,  # of two\n)\n",
        "tests/aoe/a/test_inner.py": "from aoe.a.inner import name\n",
        "tests/aoe/b/test_user.py": "import aoe.errors\nfrom aoe.a import interface\n",
        "tests/aoe/b/test_text.py": 'SCRIPT = """\nfrom aoe.a.inner import name\n"""\n',
        "tests/support/worlds.py": "from aoe.a.inner import name\n",
        "tests/aoe/b/test_other.py": "def test() -> None:\n    from aoe.a import inner\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [*_inner_imports(tmp_path)] == [("tests/aoe/b/test_other.py", "aoe.a.inner")]


def _inner_imports(root: Path) -> Iterator[tuple[str, str]]:
    """Yield tests outside of `tests/support` and the inner modules of other folders they import.

    Text shows what may be such an import. Only those files are parsed, which shows what stands in
    a string: to parse the product and all tests takes five seconds.
    """
    modules = {
        _dotted(root, file): file for name in PACKAGES for file in root.glob(f"{name}/**/*.py")
    }
    folders = {
        module: module if file.name == "__init__.py" else module.rpartition(".")[0]
        for module, file in modules.items()
    }
    inner = {module for module in modules if not PUBLIC.fullmatch(module)}
    for importer, file in modules.items():
        used = _imported(file.read_text(), modules)
        inner -= {module for module in used if not _is_within(folders[importer], folders[module])}
    for file in sorted(root.glob("tests/**/*.py")):
        place, text = _dotted(root / "tests", file.parent), file.read_text()
        forbidden = {module for module in inner if not _is_within(place, folders[module])}
        if _is_within(place, "support") or not forbidden & _imported(text, modules):
            continue
        nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
        statements = "\n".join(map(ast.unparse, nodes))
        for module in sorted(forbidden & _imported(statements, modules)):
            yield str(file.relative_to(root)), module


def _imported(text: str, modules: Container[str]) -> set[str]:
    """Return the modules of the product that import statements name, one to a line."""
    found = set()
    for module, names, plain in IMPORT.findall(text):
        found |= {part.split()[0] for part in plain.split(",") if plain}
        for name in re.findall(r"[(,]\s*(\w+)", f"({names}"):
            found.add(f"{module}.{name}" if f"{module}.{name}" in modules else module)
    return found


def _dotted(root: Path, file: Path) -> str:
    parts = file.relative_to(root).parts
    return ".".join(parts).removesuffix(".py").removesuffix(".__init__")


def _is_within(place: str, folder: str) -> bool:
    return f"{place}.".startswith(f"{folder}.")
