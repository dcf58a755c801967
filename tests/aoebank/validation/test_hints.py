"""A hint is given only if following it removes the finding and brings no error."""

from __future__ import annotations

import ast
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import pytest
from support import sample_bank_files as samples
from support.follow_hints import HINTS, follow
from support.runtime_kb_lines import (
    line,
    whole_record,
    with_info,
    with_knowledge,
)
from support.smallest_trees import (
    BAD,
    ENTRY,
    KEY,
    QUARANTINE,
    ROW,
    SIDE_CAR,
    SUBGRAPH,
    TREES,
    WORKLOADS,
    A,
    B,
    C,
    F,
    G,
    H,
    K,
    R,
    cache,
    candidate,
    graph,
    item,
    kernels,
    results,
    rows,
    runtime,
    table,
    trial,
    unified,
    write_tree,
)

from aoebank import Finding, Severity
from aoebank.model.codes import CODES
from aoebank.validation.built_in import find_built_in
from aoebank.validation.run import validate

ROOT = Path(__file__).resolve().parents[3]
TODAY = date(2026, 5, 1)
VECTOR = samples.VECTOR.name
NONE = "0" * 32
# further hints of codes that have several, one per format or cause
D = "database_tuning_record.json"
T = "v0_1_trtllm_fused_moe_NVIDIA_B200.py"
MORE: dict[str, dict[str, str | bytes]] = {
    "AB103 line": {A: f"{line()}\n{{\n"},
    "AB105 runtime": {A: "\ufeff" + line() + "\n"},
    "AB105 unified": {B: "\ufeff" + unified()},
    "AB112 side-car": {B: unified(), SIDE_CAR: f"{json.dumps(ENTRY)}\n\n"},
    "AB204 line": {A: f"{line()}\n[]\n"},
    "AB205 cube": {C: '{"shape": {"a": 1}}\n{"shape": {}, "tiling": [], "cost_time": 1}\n'},
    "AB205 gradient": {F: json.dumps([item(), {"modelvalue": {}}])},
    "AB205 graph": graph(SUBGRAPH, {"graphID": "7"}),
    "AB205 op": {A: f'{line()}\n{{"id":1,"version":0,"info_dict":{{}},"knowledge":{{}}}}\n'},
    "AB211 near": {A: with_knowledge(baseMM=1).replace('"baseM":', '"baseM_":')},
    "AB301 vector": {VECTOR: '{"[[1]]": "[[1], 5]", "[[1]]": "[[1], 6]"}'},
    "AB302 taken": {B: unified(KEY.upper())[:-1] + ", " + unified()[1:]},
    "AB303 taken": {B: unified(NONE)[:-1] + ", " + unified()[1:]},
    "AB305 graph": graph(SUBGRAPH, SUBGRAPH),
    "AB306 graph": graph(SUBGRAPH, {**SUBGRAPH, "strategy": {**SUBGRAPH["strategy"], "a": 1}}),
    "AB310": {A: f"{with_info(m=352, n=5840)}\n{with_info(m=352, n=7952)}\n"},
    "AB211 vllm": {G: rows(**{"16": {**ROW, "BLOCKSIZE_M": 16}})},
    "AB404 vllm": {G: rows(**{"16": {**ROW, "BLOCK_SIZE_M": 48}})},
    "AB112 table": {H: table("80,1,2,3,0,9.5", "", "80,2,2,3,0,9.5")},
    "AB305 table": {H: table("80,1,2,3,0,9.5", "80,1,2,3,0,9.5")},
    "AB306 table": {H: table("80,1,2,3,0,9.5", "80,1,2,3,1,9.5")},
    "AB314 table": {H: table("80,1,2,3,0,9.5", "80, 2,2,3,0,9.5")},
    "AB221 other": {
        H: table("80,1,2,3,0,9.5", "cu_num,M,N,K,kernelId,us,bw", "80,2,2,3,0,9.5,1.0")
    },
    "AB402 table": {H: table("80,1,2,3,0,9.5", "80,2,2,3,0,0.0")},
    "AB315 tunable_op": {"tunableop_results0.csv": "A_B_NN,nn_1_2,x,1\n"},
    "AB313 tunable_op": {"tunableop_results0.csv": "A_B_NN,nn_1_2,x,1\nA_B_NN,8,x,1\n"},
    "AB315 kernel_tuner": {K: cache("1").replace('"device_name": "A100", ', "")},
    "AB315 t4": {R: results("1", device="")},
    "AB415 t4": {R: results("NaN", "2")},
    "AB402 kernel_tuner": {K: cache("1", "NaN")},
    "AB402 t4": {R: results("1", '""')},
    "AB206 kernel_tuner": {K: cache("1", '"slow"')},
    "AB313 kernel_tuner": {K: cache("1", "2").replace('"2":', '"3":')},
    "AB404 t4": {R: results("1", "2").replace("correct", "wrong", 1)},
    "AB305 t4": {R: results("1", "2").replace('"x": 2', '"x": 1')},
    "AB313 akg": {"repository.json": kernels({"Fuzzy_MatMul": {"8": {"float32": {}}}})},
    "AB313 shapes of akg": {
        "repository.json": kernels({"1.Abs1.2": {"8_8.8_8": {"float32-": {}}}})
    },
    "AB313 types of akg": {"repository.json": kernels({"1.Abs1.2": {"8-": {"float32": {}}}})},
    "AB211 akg": {"repository.json": kernels({"1.Abs1.2": {"metadata": {"x": 1, "attrs": {}}}})},
    "AB313 flashinfer": {T: "best_configs = {\n    \"('a', 'B', ((1,),))\": (0, 5),\n}\n"},
    "AB206 flashinfer": {T: "best_configs = {\n    \"('a', 'B', (), ())\": 5,\n}\n"},
    "AB508 metaschedule": {D: trial(0)},
    "AB509 metaschedule": {D: trial(2), "database_workload.json": '["1","e30="]\n'},
    "AB206 metaschedule": {D: f"{trial(0)}[0]\n", **WORKLOADS},
    "AB315 metaschedule": {D: trial(0) + trial(1).replace('{"kind": "cuda"}', "null"), **WORKLOADS},
    "AB402 metaschedule": {D: trial(0) + trial(1, -1.5), **WORKLOADS},
    "AB402 vector": {VECTOR: '{"[[1]]": "[[1], -5]"}'},
    "AB405 much": {A: with_knowledge(baseM=2**40)},
    "AB407 bool": {A: with_knowledge(baseM=True)},
    "AB519 table": {
        H: table(*(f"{units},{m},64,64,1,9.5" for units in (80, 304) for m in (1, 2, 3)))
    },
    "AB514 expired": {B: unified(), QUARANTINE: json.dumps({**BAD, "until": "2026-04-01"})},
    **{
        f"{code} all": runtime("Conv2DV2", json.dumps(record))
        for code, record in (
            ("AB209", {**whole_record("Conv2DV2"), "knowledge": {}}),
            ("AB218", {**whole_record("Conv2DV2"), "knowledge": {}}),
        )
    },
}


def _found(root: Path) -> list[Finding]:
    return [*validate([root], today=TODAY).findings]


def _check_followed(root: Path, code: str) -> None:
    """Follow every hint about a code until none of them is left; each takes a finding away."""
    findings = _found(root)
    wanted = [finding for finding in findings if finding.code == code]
    assert wanted, findings
    for _ in range(len(wanted)):
        told = next((finding for finding in findings if finding.code == code), None)
        if told is None or not told.hint:
            return
        follow(root, told)
        after = _found(root)
        assert _count(after, code) < _count(findings, code), told
        assert _errors(after) <= _errors(findings), told
        findings = after


def _count(findings: Sequence[Finding], code: str) -> int:
    return sum(finding.code == code for finding in findings)


def _errors(findings: Sequence[Finding]) -> Counter[str]:
    return Counter(found.code for found in findings if found.severity is Severity.ERROR)


@pytest.mark.parametrize("code", TREES)
def test_following_the_hint_removes_the_finding(tmp_path: Path, code: str) -> None:
    write_tree(tmp_path, TREES[code])
    _check_followed(tmp_path, code)


@pytest.mark.parametrize("case", MORE)
def test_following_a_further_hint_of_a_code_removes_the_finding(tmp_path: Path, case: str) -> None:
    write_tree(tmp_path, MORE[case])
    _check_followed(tmp_path, case.partition(" ")[0])


def test_slower_record_removed_hides_nothing(tmp_path: Path) -> None:
    for folder, time in (("custom", 2.0), ("opp", 1.0)):
        write_tree(tmp_path / folder, {B: unified(KEY, candidate(cost_time=time))})
    tier = find_built_in(tmp_path / "opp", env={}, cwd=tmp_path)
    (finding,) = validate([tmp_path / "custom"], built_in=tier).findings
    assert finding.code == "AB510"
    follow(tmp_path, finding)
    left = validate([tmp_path / "custom"], built_in=tier).findings
    assert {found.code for found in left} <= {"AB115"}


def test_link_removed_is_met_no_more(tmp_path: Path) -> None:
    write_tree(tmp_path, {B: unified()})
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    _check_followed(tmp_path, "AB511")


def test_variable_unset_asks_for_no_built_in_bank(tmp_path: Path) -> None:
    bank, empty, opp = (tmp_path / name for name in ("bank", "empty", "opp"))
    for folder in (bank, opp):
        write_tree(folder, {B: unified()})
    env = {"ASCEND_OPP_PATH": str(empty)}
    (finding,) = validate([bank], built_in=find_built_in(None, env=env, cwd=tmp_path)).findings
    assert finding.hint == "name its directory with --built-in, or unset the variable"
    for directory, variables in ((None, {}), (opp, env)):
        tier = find_built_in(directory, env=variables, cwd=tmp_path)
        assert validate([bank], built_in=tier).findings == ()


def test_what_is_no_file_is_to_be_moved_and_what_is_not_there_has_no_hint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / B)
    findings = validate([tmp_path, tmp_path / "gone"]).findings
    assert {(found.code, found.hint) for found in findings} == {
        ("AB101", "move it out of the bank"),
        ("AB501", ""),
    }


def test_record_removed_has_no_strategy_of_its_engine(tmp_path: Path) -> None:
    answer = candidate(knowledge={"engine": "own", "steps": "rm -rf"})
    write_tree(tmp_path, {B: unified(KEY, answer)})
    (finding,) = validate([tmp_path], strategy_problem=lambda record: "no list of steps").findings
    assert (finding.code, finding.hint) == (
        "AB410",
        "tune the workload again, or remove the record",
    )
    write_tree(tmp_path, {B: "{}"})
    after = validate([tmp_path], strategy_problem=lambda record: "no list of steps").findings
    assert "AB410" not in {found.code for found in after}


MADE = {"AB101", "AB410", "AB501", "AB510", "AB511", "AB512"}  # above, one by one


def test_no_code_is_left_out() -> None:
    followed = {*TREES, *MADE, *(case.partition(" ")[0] for case in MORE)}
    assert followed == {*CODES}


def _hints() -> Iterator[tuple[str, str]]:
    """Yield the text of every hint of a finding in the source, its values replaced by X."""
    places = [*(ROOT / "aoebank" / "formats").rglob("*.py")]
    places += (ROOT / "aoebank" / "validation").rglob("*.py")
    for path in places:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _makes_finding(node):
                for keyword in node.keywords:
                    if keyword.arg == "hint":
                        yield from ((path.name, text) for text in _texts(keyword.value))


def _makes_finding(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name in ("Problem", "make_finding", "missing", "not_a_record")


def _texts(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts
            )
        case ast.Call(func=ast.Name(id="_hint")):
            yield "make them alike, if they should be; X"
        case ast.IfExp(body=first, orelse=second):
            yield from (*_texts(first), *_texts(second))


def test_every_hint_in_the_source_is_one_that_is_followed_here() -> None:
    found = [*_hints()]
    assert len(found) > 40
    patterns = [re.sub(r"^\^AB\S+ ", "", pattern).strip() for pattern in HINTS]
    lost = [hint for hint in found if not any(re.search(known, hint[1]) for known in patterns)]
    assert lost == []
