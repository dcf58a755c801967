"""Each finding code there is comes out of a smallest file, and no code is left without one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.runtime_kb_lines import with_info
from support.smallest_trees import HEALTHY, KEY, TREES, A, B, candidate, unified, write_tree

from aoebank.model.codes import CODES
from aoebank.validation.built_in import find_built_in
from aoebank.validation.run import validate


def _pipe(root: Path) -> list[str]:
    os.mkfifo(root / B)
    return found(root)


def _collision(root: Path) -> list[str]:
    # the hash of both packed structs is 2590717951; found by trying 350,000 shapes
    (root / A).write_text(f"{with_info(m=352, n=5840)}\n{with_info(m=352, n=7952)}\n")
    return found(root)


def _missing(root: Path) -> list[str]:
    return found(root / "gone")


def _slower(root: Path) -> list[str]:
    for folder, time in (("custom", 2.0), ("opp", 1.0)):
        (root / folder).mkdir()
        (root / folder / B).write_text(unified(KEY, candidate(cost_time=time)))
    return found(root / "custom", built_in=root / "opp")


def _loop(root: Path) -> list[str]:
    (root / "again").symlink_to(root, target_is_directory=True)
    return found(root)


def _no_opp(root: Path) -> list[str]:
    return found(root, env={"ASCEND_OPP_PATH": str(root)})


def _engine(root: Path) -> list[str]:
    answer = candidate(knowledge={"engine": "own", "steps": "rm -rf"})
    (root / B).write_text(unified(KEY, answer))
    result = validate([root], strategy_problem=lambda record: "no list of steps")
    return [finding.code for finding in result.findings if finding.got == "no list of steps"]


MADE: dict[str, Callable[[Path], list[str]]] = {
    "AB101": _pipe,
    "AB310": _collision,
    "AB410": _engine,
    "AB501": _missing,
    "AB510": _slower,
    "AB511": _loop,
    "AB512": _no_opp,
}


def found(
    path: Path, *, built_in: Path | None = None, env: dict[str, str] | None = None
) -> list[str]:
    tier = find_built_in(built_in, env=env or {}, cwd=path)
    return [finding.code for finding in validate([path], built_in=tier).findings]


@pytest.mark.parametrize("code", TREES)
def test_code_comes_out_of_a_smallest_tree(tmp_path: Path, code: str) -> None:
    write_tree(tmp_path, TREES[code])
    assert code in found(tmp_path)


@pytest.mark.parametrize("code", MADE)
def test_code_comes_out_of_a_smallest_situation(tmp_path: Path, code: str) -> None:
    assert code in MADE[code](tmp_path)


def test_no_code_is_without_an_example_here() -> None:
    assert {*TREES, *MADE} >= {*CODES}


def test_examples_are_smallest_edits_of_banks_without_findings(tmp_path: Path) -> None:
    write_tree(tmp_path, HEALTHY)
    assert found(tmp_path) == []
