"""The tree is the architecture: imports point one way, files stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HARD_CAP_LINES = 600
INIT_CAP_LINES = 60
PUBLIC_API = {"aoebank/__init__.py", "aoe/__init__.py"}  # lists of names, one per line
FUNCTION_CAP_LINES = 50
ENVIRON_ALLOWED = {"aoebank/storage/tiers.py", "aoe/settings.py"}
AOEBANK_LAYERS = ("cli", "report", "ops", "storage", "formats", "model", "errors")
AOE_LAYERS = {  # a module may import modules of a larger number, or of its own
    "cli": 0,
    "torch": 1,
    "tuning": 2,
    "offline_model": 3,
    "loading": 3,
    "bank_io": 3,
    "gradient_bank": 3,
    "gradient_result": 3,
    "gradient_schema": 3,
    "result_files": 3,
    "graph": 4,
    "execute": 4,
    "entry": 4,
    "kernels": 5,
    "gradients": 5,
    "settings": 6,
    "target": 6,
    "workload": 6,
    "schedule": 6,
    "measurement": 6,
    "errors": 7,
}


def _sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def _imports(path: Path) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, ()
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno, tuple(alias.name for alias in node.names)


def _part(module: str) -> str:
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


def _own_part(path: Path, package: str) -> str:
    return path.relative_to(ROOT / package).parts[0].removesuffix(".py")


def test_aoebank_imports_point_down() -> None:
    rank = {name: number for number, name in enumerate(AOEBANK_LAYERS)}
    wrong = []
    for path in _sources("aoebank"):
        own = _own_part(path, "aoebank")
        for module, line, _ in _imports(path):
            if module.split(".")[0] == "aoe":
                wrong.append(f"{path}:{line}: aoebank imports aoe")
            target = _part(module) if module.split(".")[0] == "aoebank" else ""
            if own in rank and target in rank and rank[target] < rank[own]:
                wrong.append(f"{path}:{line}: {own} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_aoe_imports_point_down() -> None:
    wrong = []
    for path in _sources("aoe"):
        own = AOE_LAYERS.get(_own_part(path, "aoe"))
        for module, line, _ in _imports(path):
            if module.split(".")[0] != "aoe":
                continue
            target = AOE_LAYERS.get(_part(module))
            if own is not None and target is not None and target < own:
                wrong.append(f"{path}:{line}: imports {module}")
    assert not wrong, "\n".join(wrong)


def test_every_aoe_module_has_its_layer() -> None:
    parts = {_own_part(path, "aoe") for path in _sources("aoe")} - {"__init__", "__main__"}
    assert parts <= set(AOE_LAYERS) | {"testing"}


def test_aoe_uses_only_the_public_bank_api() -> None:
    import aoebank

    wrong = []
    for path in _sources("aoe"):
        for module, line, names in _imports(path):
            if module.split(".")[0] != "aoebank":
                continue
            hidden = [name for name in names if name not in aoebank.__all__]
            if module != "aoebank" or hidden:
                wrong.append(f"{path}:{line}: {module} {hidden}")
    assert not wrong, "\n".join(wrong)


def test_search_never_measures_and_execute_never_searches() -> None:
    wrong = []
    for path in _sources("aoe"):
        own = path.relative_to(ROOT).as_posix()
        for module, line, _ in _imports(path):
            if own.startswith("aoe/tuning/search/") and module.startswith("aoe.execute"):
                wrong.append(f"{path}:{line}")
            if own.startswith("aoe/execute/") and module.startswith("aoe.tuning"):
                wrong.append(f"{path}:{line}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ["aoebank", "aoe"])
def test_environment_is_read_in_one_place(package: str) -> None:
    wrong = []
    for path in _sources(package):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            reads = isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
            if reads and name not in ENVIRON_ALLOWED:
                wrong.append(f"{name}:{node.lineno}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ["aoebank", "aoe"])
def test_files_and_functions_stay_small(package: str) -> None:
    wrong = []
    for path in _sources(package):
        text = path.read_text()
        lines = text.count("\n")
        cap = INIT_CAP_LINES if path.name == "__init__.py" else HARD_CAP_LINES
        if lines > cap:
            wrong.append(f"{path}: {lines} lines")
        wrong.extend(_long_functions(path, ast.parse(text)))
    assert not wrong, "\n".join(wrong)


def _long_functions(path: Path, tree: ast.Module) -> Iterator[str]:
    if "/cli/" in path.as_posix():
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
        length = (node.end_lineno or 0) - first.lineno + 1
        if length > FUNCTION_CAP_LINES:
            yield f"{path}:{node.lineno}: {node.name} is {length} lines"
