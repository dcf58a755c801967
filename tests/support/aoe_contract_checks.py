"""Probes of `docs/for-aoe-users.toml` that need more than a word: one function each."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import aoebank
from aoe.bank.damage import without_damaged
from aoe.results.files import Gain, GainKind, RepoOutcome, TuningResult, improvement_text
from aoe.results.opat import OpatReport, OperatorResult, opat_report_to_json
from aoe.settings import work_path
from aoebank import Bank, BankFormatError, Event, resolve_bank
from support.aoe_contract import Runs, call

_DEFAULT = "home/Ascend/latest/data/aoe/custom/op"


def _root(runs: Runs, **env: str) -> str:
    bank = resolve_bank(env=env, cwd=runs.root)
    return bank.root.relative_to(runs.root).as_posix()


def _cache_path(runs: Runs) -> None:
    assert _root(runs, ASCEND_CACHE_PATH="home", HOME=str(runs.root)) == "home/aoe_data"


def _home_path(runs: Runs) -> None:
    assert _root(runs, HOME=str(runs.root / "home")) == _DEFAULT


def _precedence(runs: Runs) -> None:
    env = {"ASCEND_CACHE_PATH": "home", "HOME": str(runs.root / "home")}
    assert _root(runs, TUNE_BANK_PATH="bank", **env) == "bank"
    assert _root(runs, **env) == "home/aoe_data"


def _work_path(runs: Runs) -> None:
    assert runs.files("work/aoe_data/aoe_result_opat_*.json")
    env = {"ASCEND_WORK_PATH": "work"}
    assert work_path(env, runs.root, runs.root / "out") == runs.root / "work" / "aoe_data"


def _bank_file(runs: Runs) -> None:
    (file,) = runs.files("bank/*/unified_bank/*_AiCore_*.json")
    soc = file.parents[1].name
    assert file.name.startswith(f"{soc}_")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o750
    assert not aoebank.validate([runs.root / "bank"]).findings


def _record_fields(runs: Runs) -> None:
    (file,) = runs.files("bank/*/unified_bank/*_AiCore_*.json")
    for key, answers in json.loads(file.read_text()).items():
        assert set(answers[0]) == {"knowledge", "info_dict", "cost_time", "origin"}
        assert key == aoebank.workload_key(answers[0]["info_dict"])


def _backup(runs: Runs) -> None:
    (file,) = runs.files("bank/*/unified_bank/*_AiCore_*.json")
    copy = runs.root / "backup" / "bank" / file.parents[1].name / "unified_bank" / file.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(file.read_bytes())
    copy.with_name(f"{file.name}.aoe").write_bytes(file.read_bytes())
    done = call(f"aoebank validate {runs.root / 'backup' / 'bank'}", runs.root)
    assert f"{file.name}.aoe" in done.out


def _broken_bank(runs: Runs) -> None:
    (file,) = runs.files("bank/*/unified_bank/*_AiCore_*.json")
    root = runs.root / "broken"
    copy = root / file.parents[1].name / "unified_bank" / file.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    torn = file.read_bytes()[:-30]
    copy.write_bytes(torn)
    with pytest.raises(BankFormatError):
        list(Bank(root).iter_records(copy))
    assert copy.read_bytes() == torn
    (found,) = without_damaged(Bank(root), file.parents[1].name, may_write=True)
    assert found.aside == copy.with_name(f"{copy.name}.damaged") and not copy.exists()


# ---- the result file ----


def _report(*operators: OperatorResult) -> list[dict[str, Any]]:
    report = OpatReport(
        tuning_name="net_1",
        baseline_ms=2.0,
        speedup=2.0,
        result=TuningResult.SUCCESSFUL,
        tasks=operators,
    )
    return opat_report_to_json(report)


def _operator(outcome: RepoOutcome, *, failed: bool = False) -> OperatorResult:
    gains = tuple(Gain(kind=kind, before_us=30.0, after_us=20.0) for kind in GainKind)
    return OperatorResult(
        op_name="n0", op_types=("Mul",), outcome=outcome, gains=gains, failed=failed
    )


def _modified() -> dict[str, Any]:
    (entry,) = _report(_operator(RepoOutcome.ADD))[1]["OPAT"]["repo_modified_operators"]
    performance: dict[str, Any] = entry["tune_performance"]
    return performance


def _gain_kinds(runs: Runs) -> None:
    assert set(_modified()) == {"Format", "Impl", "Schedule"}


def _gain_fields(runs: Runs) -> None:
    assert _modified()["Impl"] == {
        "performance_after_tune(us)": 20.0,
        "performance_before_tune(us)": 30.0,
        "performance_improvement": "50.00%",
        "update_mode": "add",
    }


def _failed_operators(runs: Runs) -> None:
    lost = _operator(RepoOutcome.UNSATISFIED, failed=True)
    report = OpatReport(tuning_name="x", result=TuningResult.FAILED, tasks=(lost,))
    assert opat_report_to_json(report)[1]["OPAT"]["tuning_failed_operators"] == ["n0"]
    assert "tuning_failed_operators" not in _report(lost)[1]["OPAT"]


def _only_basic(runs: Runs) -> None:
    (section,) = runs.result("plain")
    assert [*section] == ["basic"]


def _new_dialect(runs: Runs) -> None:
    body = runs.result("out")[1]["OPAT"]
    assert "opat_tune_result" not in body
    assert isinstance(body["repo_modified_operators"], list)


def _formula(runs: Runs) -> None:
    assert improvement_text(2.0) == "100.00%"
    body = runs.result("out")[1]["OPAT"]
    before, after = (body[f"model_{name}_performance(ms)"] for name in ("baseline", "result"))
    stated = float(body["model_performance_improvement"].rstrip("%"))
    assert (before - after) / after * 100 == pytest.approx(stated, rel=1e-3, abs=0.01)


def _identities(runs: Runs) -> None:
    for run in ("out", "again"):
        repo = runs.result(run)[1]["OPAT"]["repo_summary"]
        assert repo["repo_hit_num"] == repo["repo_update_num"] + repo["repo_reserved_num"]
        added = repo["repo_add_num"] + repo["repo_hit_num"] + repo["repo_unsatisfied_num"]
        assert repo["total_num"] == added


# ---- rules ----


def _second_run_reserves(runs: Runs) -> None:
    first, again = (runs.result(run)[1]["OPAT"]["repo_summary"] for run in ("out", "again"))
    assert again["repo_reserved_num"] >= first["repo_add_num"] > 0


def _repeat_setting(runs: Runs) -> None:
    for text, expected in (("True", True), ("False", False)):
        done = call(f"REPEAT_TUNE={text} aoe --model=net.onnx", runs.root, tuning=False)
        assert [settings.repeat_tune for settings in done.asked] == [expected]


def _unsatisfied_event(runs: Runs) -> None:
    assert Event("unsatisfied") is Event.UNSATISFIED


def _nothing_is_success(runs: Runs) -> None:
    assert "not improved" in runs.screens["plain"]  # whose run ended with exit code 0


CHECKS: Mapping[str, Callable[[Runs], None]] = {
    "cache path": _cache_path,
    "home path": _home_path,
    "bank precedence": _precedence,
    "work path": _work_path,
    "bank file": _bank_file,
    "record fields": _record_fields,
    "backup": _backup,
    "broken bank": _broken_bank,
    "gain kinds": _gain_kinds,
    "gain fields": _gain_fields,
    "failed operators": _failed_operators,
    "only basic": _only_basic,
    "new dialect": _new_dialect,
    "formula": _formula,
    "identities": _identities,
    "second run reserves": _second_run_reserves,
    "repeat setting": _repeat_setting,
    "unsatisfied event": _unsatisfied_event,
    "nothing is success": _nothing_is_success,
}
