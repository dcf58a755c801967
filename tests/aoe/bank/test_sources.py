"""Digests of what strategies are turned into code by: they change when that code does."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aoe
from aoe.bank import sources
from aoe.bank.sources import kernel_source, rule_source, source_of
from aoe.kernels.registry import FAMILIES
from aoe.tasks.rewrites.subgraphs import RULES
from aoebank import make_unified_record

_PACKAGE = Path(aoe.__file__).parent


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A mapping of files to what they say instead; what is known of files is forgotten."""
    texts: dict[str, str] = {}
    _forget()
    read = sources.text_of.__wrapped__
    monkeypatch.setattr(sources, "text_of", lambda file: texts.get(file) or read(file))
    yield texts
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    for function in vars(sources).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def test_registry_is_read_as_python_reads_it() -> None:
    homes = {
        name: Path(inspect.getfile(type(family))).relative_to(_PACKAGE).as_posix()
        for name, family in FAMILIES.items()
    }
    assert sources.family_files() == homes


def test_every_family_has_a_digest_of_its_own() -> None:
    digests = [kernel_source(name) for name in FAMILIES]
    assert None not in digests
    assert len(set(digests)) == len(FAMILIES)
    assert kernel_source("no_such_family") is None


def test_every_rule_is_found_in_one_file() -> None:
    files = {name: sources.files_of_rule(name) for name in RULES}
    assert {name: len(found) for name, found in files.items() if len(found) != 1} == {}
    assert rule_source(["no-such-rule"]) is None
    assert rule_source([]) is not None


def test_order_of_rules_does_not_count() -> None:
    one, other = [*RULES][:2]
    assert rule_source([one, other]) == rule_source([other, one]) == rule_source([one, other, one])


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("kernels/normalization/lrn.py", {"lrn"}),
        ("kernels/pooling.py", {"pooling"}),
        ("kernels/halide/iteration.py", {"lrn", "pooling"}),
        ("kernels/registry.py", set()),
        ("operators/table.py", set()),
    ],
)
def test_change_of_code_changes_the_families_that_use_it(
    edited: dict[str, str], file: str, changed: set[str]
) -> None:
    before = {name: kernel_source(name) for name in ("lrn", "pooling")}
    _forget()
    edited[file] = (_PACKAGE / file).read_text() + "\nANOTHER = 1\n"
    after = {name: kernel_source(name) for name in before}
    assert {name for name in before if before[name] != after[name]} == changed


def test_comments_docstrings_and_blank_lines_do_not_count(edited: dict[str, str]) -> None:
    file = "kernels/normalization/lrn.py"
    before = kernel_source("lrn")
    _forget()
    nothing, _, code = (_PACKAGE / file).read_text().split('"""', maxsplit=2)
    assert not nothing
    noted = [f"{line}  # why" if line.startswith("from ") else line for line in code.splitlines()]
    edited[file] = '"""Another."""\n\n# a comment\n' + "\n\n".join(noted)
    assert kernel_source("lrn") == before


def test_code_of_a_function_without_a_body_counts(edited: dict[str, str]) -> None:
    edited["a.py"] = "def f() -> None: ...\n"
    assert sources.code_of("a.py") == "def f() -> None: ..."


def test_record_of_another_engine_has_no_source() -> None:
    record = make_unified_record(workload={"a": 1}, strategy={"x": 1}, cost_us=1.0, origin="x")
    assert source_of(record) is None


def test_no_library_of_the_engine_is_loaded() -> None:
    code = (
        "import sys\nfrom aoe.bank.sources import kernel_source\nassert kernel_source('lrn')\n"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'halide', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
