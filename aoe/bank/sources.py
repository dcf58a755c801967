"""Digest of the sources that turn a strategy into code: it changes when they do.

Of an operator that is the file of its kernel family, of a part of a training graph that of its
loops or ways, of a subgraph the files of the rules in its strategy, each with what they import from
the same part of the engine. Comments, docstrings and
blank lines do not count. Files are read, never imported: no library of the engine is needed.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources

from aoe.bank.records.subgraph import strategy_of
from aoe.workload import TRAINING_CONVOLUTION, TRAINING_LOOP
from aoebank import Record

_KERNELS, _RULES = "kernels", "graph/rewrites"
_FAMILIES = "kernels/registry.py"
_TRAINING = "torch/modules/training"
_OF_TRAINING = {
    TRAINING_CONVOLUTION: f"{_TRAINING}/convolution_ways.py",
    TRAINING_LOOP: f"{_TRAINING}/row_loops.py",
}
_CHUNKS = "graph/subgraphs/chunks.py"
_DIGITS = 16
"""Of the SHA-256, in hexadecimal: enough to tell a few dozen versions of a file apart."""


def source_of(record: Record) -> str | None:
    """Return the digest for a record, None if no source of this engine is behind it.

    Args:
        record: Of an operator or of a subgraph; the engine's own.
    """
    strategy = record.strategy
    if record.op_type is not None:
        ours = isinstance(strategy, dict) and strategy.get("engine") == "aoe"
        return kernel_source(record.op_type) if ours else None
    try:
        applied = strategy_of(record)
    except ValueError:
        return None
    return rule_source(rule.rule for rule in applied.rewrites)


def kernel_source(op_type: str) -> str | None:
    """Return the digest for a kernel family, None if there is none of that name."""
    if (file := _OF_TRAINING.get(op_type)) is not None:
        return _digest(frozenset({file}), _TRAINING)
    file = family_files().get(op_type)
    return None if file is None else _digest(frozenset({file}), _KERNELS)


@cache
def kernel_files(op_type: str) -> frozenset[str]:
    """Return the files a kernel family is made of, below the package; none for an unknown one."""
    file = family_files().get(op_type)
    return frozenset() if file is None else frozenset(_with_imports({file}, _KERNELS))


def rule_source(rules: Iterable[str]) -> str | None:
    """Return the digest for rules by name, None if one of them is gone.

    Without a rule it is that of what cuts batches.
    """
    files = {name: files_of_rule(name) for name in rules}
    if not all(files.values()):
        return None
    return _digest(frozenset({_CHUNKS}.union(*files.values())), _RULES)


@cache
def _digest(files: frozenset[str], part: str) -> str:
    """Return the digest of files and of all they import from a part of the engine."""
    digest = hashlib.sha256()
    for file in sorted(_with_imports(files, part)):
        digest.update(f"{file}\n{code_of(file)}\n".encode())
    return digest.hexdigest()[:_DIGITS]


def _with_imports(files: Iterable[str], part: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting += [other for other in _imports(file) if other.startswith(f"{part}/")]
    return seen


@cache
def _imports(file: str) -> tuple[str, ...]:
    """Return the files of the engine a file imports, whichever names it takes from them."""
    found = []
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    files = [
        name.removeprefix("aoe.").replace(".", "/") for name in found if name.startswith("aoe.")
    ]
    return tuple(path for name in files if _is_file(path := f"{name}.py"))


@cache
def code_of(file: str) -> str:
    """Return the code of a file without comments, docstrings and blank lines."""
    text = text_of(file)
    lines = text.splitlines()
    for row, column in _comments(text):
        lines[row - 1] = lines[row - 1][:column]
    for first, last in _docstrings(_tree(file)):
        lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _comments(text: str) -> Iterator[tuple[int, int]]:
    """Yield line and column of each comment."""
    if "#" not in text:  # of most files; looking at each token takes its time
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield first and last line of each text that stands alone, whatever it documents."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                yield node.lineno, node.end_lineno or node.lineno


@cache
def family_files() -> dict[str, str]:
    """Return the file of each kernel family, as its registry says: it is read, not imported."""
    tree = _tree(_FAMILIES)
    homes = {
        alias.asname or alias.name: f"{node.module.removeprefix('aoe.').replace('.', '/')}.py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    found = {}
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id="FAMILIES"), value=ast.Dict() as families):
                for key, made in zip(families.keys, families.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(made, ast.Call):
                        found[str(key.value)] = homes[ast.unparse(made.func)]
    return found


@cache
def files_of_rule(name: str) -> frozenset[str]:
    """Return the files of rules that write the name of a rule; the registry lists names only."""
    return frozenset(
        file
        for file in _tree_below(_RULES)
        if file != f"{_RULES}/registry.py"
        and f'"{name}"' in text_of(file)
        and any(isinstance(n, ast.Constant) and n.value == name for n in ast.walk(_tree(file)))
    )


@cache
def _tree_below(folder: str) -> tuple[str, ...]:
    found: list[str] = []
    for entry in (resources.files("aoe") / folder).iterdir():
        path = f"{folder}/{entry.name}"
        if entry.is_dir():
            found += _tree_below(path)
        elif entry.name.endswith(".py"):
            found.append(path)
    return tuple(sorted(found))


def _is_file(path: str) -> bool:
    return (resources.files("aoe") / path).is_file()


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse(text_of(file))


@cache
def text_of(file: str) -> str:
    """Return the text of a source file, given its path below the package."""
    return (resources.files("aoe") / file).read_text(encoding="utf-8")
