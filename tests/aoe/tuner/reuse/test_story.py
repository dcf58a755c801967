"""The whole story in git: tune, commit, change the model, tune the change, merge, compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from support.engine.models import save_model
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.git_work_tree import WorkTree

from aoe.cli.app import main
from aoe.om.file import read_manifest
from aoe.runs.operators.result import OpatResult
from aoe.tuner.reuse.kinds import ReuseKind
from aoebank import Bank, Record, stale, validate


def _tune(
    runs: ScriptedRuns, tree: WorkTree, name: str, model: onnx.ModelProto, **options: Any
) -> OpatResult:
    """Tune a model that lies in a work tree, with the bank there, and commit everything."""
    file = save_model(model, tree.top / f"{name}.onnx")
    bank, output = tree.top / "bank", tree.top / f"{name}.out"
    result = runs.tune(file, bank=bank, output=output, **options).get(OpatResult)
    for left in output.glob("aoe_result_*.json"):
        left.unlink()  # named after the time
    tree.commit(f"tuned {name}")
    return result


def _keys(result: OpatResult) -> set[str]:
    return {one.operator.key for one in result.operators}


def test_changed_model_is_tuned_merged_with_a_colleague_and_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = ScriptedRuns()
    monkeypatch.setenv("HOME", str(tmp_path))
    old = WorkTree(tmp_path / "old")
    old.install()
    first = _tune(runs, old, "net", blocks_net([3, 5, 7]))

    # a colleague tunes another model in a clone
    theirs = old.copy(tmp_path / "theirs")
    theirs.git("checkout", "-q", "-b", "theirs")
    other = _tune(runs, theirs, "other", blocks_net([11, 13]))

    # the changed model is tuned in a repository that knows nothing but the earlier output
    new = WorkTree(tmp_path / "new")
    new.install()
    runs.trials()
    changed = blocks_net([3, 9, 11], head="LogSoftmax")
    second = _tune(runs, new, "net", changed, base_result=old.top / "net.out")
    assert second.reuse is not None
    reused, dropped = _keys(first) & _keys(second), _keys(first) - _keys(second)
    assert second.reuse.count(ReuseKind.REUSED) == len(reused) > 0
    assert second.reuse.count(ReuseKind.DROPPED) == len(dropped) > 0
    searched = {one.operator.key for one in second.operators if one.search is not None}
    assert searched == _keys(second) - _keys(first)

    # both banks become one
    bank = new.top / "bank"
    done = new.aoebank("merge", "bank", str(theirs.top / "bank"), "-o", "bank")
    assert done.returncode == 0, done.stderr
    new.commit("merged")
    assert not [f for f in validate(bank).findings if f.severity == "error"]
    merged = {record.key for record in _records(bank)}
    assert merged == _keys(first) | _keys(second) | _keys(other)
    assert not any(one.drift.is_stale for one in stale(bank).found)

    # and every model of either is compiled from it, without a trial
    runs.trials()
    for name, model in (("net", changed), ("other", blocks_net([11, 13]))):
        file = save_model(model, tmp_path / f"{name}.onnx")
        words = ["compile", f"--model={file}", f"--op_bank_path={bank}"]
        with pytest.raises(SystemExit) as stop:
            main([*words, f"--output={tmp_path / name}", "--json"], engine=runs.engine)
        assert stop.value.code == 0
        kernels = read_manifest(tmp_path / f"{name}.om").kernels
        assert {kernel.key for kernel in kernels} <= merged
        assert kernels
    assert runs.trials() == 0


def _records(bank: Path) -> list[Record]:
    return [record for file in Bank(bank).iter_files() for record in Bank(bank).iter_records(file)]
