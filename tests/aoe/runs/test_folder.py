"""A directory of models is tuned by a script: one bank, one result file, one broken model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.caffe.model_files import TestLayer, TestNet, write_net
from support.engine.environments import run_environment
from support.engine.models import chain_model, save_model, slow_chain_net
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.engine.stand_in_modes import StandInMode

from aoe.entry.folder import FoundModel, find_models
from aoe.entry.torch_dump import SCHEMA as DUMP_SCHEMA
from aoe.errors import OptionError, TargetError
from aoe.report.folder import FolderReport
from aoe.runs.folder import ModelOfFolder, tune_folder
from aoe.runs.operators.result import OpatResult
from aoe.tuner.mode import JobType, ModeContext, TuneSettings
from aoe.tuner.parts import EngineParts
from aoe.tuner.progress import Progress, SilentProgress
from aoebank import emit

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_STAMP = "20260102030405678"
_SCRIPTED = ScriptedRuns().engine


@contextmanager
def _silent() -> Iterator[Progress]:
    yield SilentProgress()


def _tune(
    root: Path,
    models: Sequence[FoundModel],
    engine: EngineParts = _SCRIPTED,
    **settings: Any,
) -> list[ModelOfFolder]:
    (root / "bank").mkdir(exist_ok=True)
    found: dict[str, Any] = {
        "model": root / "models",
        "output": root / "out",
        "core_num": 2,
        "accept_busy": True,
        "trials": 2,
    }
    done = tune_folder(
        TuneSettings(**(found | settings)),
        models,
        env=run_environment(root / "bank"),
        cwd=root,
        progress=_silent,
        now=_NOW,
        engine=engine,
    )
    return list(done)


@dataclass(frozen=True)
class Tuned:
    """A directory that was tuned."""

    root: Path
    models: list[ModelOfFolder]

    @property
    def reports(self) -> dict[str, Any]:
        """What the result file says."""
        (file,) = (self.root / "out").glob("aoe_result_opat_*.json")
        found: dict[str, Any] = json.loads(file.read_text())
        return found


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """Return a directory with the same network twice, and something broken between them."""
    root = tmp_path_factory.mktemp("folder")
    folder = root / "models"
    folder.mkdir()
    for name in ("a", "c"):
        save_model(slow_chain_net(channels=16, extent=96), folder / f"{name}.onnx")
    (folder / "b.onnx").write_text("no model")
    return Tuned(root, _tune(root, find_models(folder), input_shape="x:1,16,96,96"))


def test_a_broken_model_stops_no_other(tuned: Tuned) -> None:
    assert [model.error is None for model in tuned.models] == [True, False, True]
    assert "not an ONNX model" in str(tuned.models[1].error)


def test_equal_workloads_are_tuned_once(tuned: Tuned) -> None:
    first, second = (
        model.result.get(OpatResult) for model in tuned.models if model.result is not None
    )
    assert [one.outcome.value for one in first.operators] == ["add"]
    assert [one.outcome.value for one in second.operators] == ["reserved"]
    assert first.bank == second.bank


def test_table_says_of_kernels_that_are_only_looked_up_that_they_are_of_the_bank(
    tuned: Tuned, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [one for one in find_models(tuned.root / "models") if one.path.stem == "a"]
    how: dict[str, Any] = {"input_shape": "x:1,16,96,96", "output": tuned.root / "looked_up"}
    done = _tune(tuned.root, models, lookup_only=True, **how)
    emit(FolderReport(folder=tuned.root / "models", models=tuple(done)), as_json=False)
    (row,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("a.onnx  "))
    assert row.split()[-3:] == ["from", "the", "bank"] and "1.000x" not in row


def test_one_result_file_has_a_report_for_each_model(tuned: Tuned) -> None:
    assert list(tuned.reports) == [f"report_{_STAMP}_{number}" for number in (1, 2, 3)]
    first, broken, last = tuned.reports.values()
    assert [section["basic"]["tuning_name"] for section in (first[0], broken[0], last[0])] == [
        f"{name}_{_STAMP}" for name in "abc"
    ]
    assert first[1]["OPAT"]["repo_summary"]["repo_add_num"] == 1
    assert last[1]["OPAT"]["repo_summary"]["repo_hit_num"] == 1
    failed = broken[1]["OPAT"]
    assert failed["opat_tuning_result"] == "tuning failed"
    assert set(failed["repo_summary"].values()) == {0}


def test_each_model_has_a_folder_and_all_share_a_bank(tuned: Tuned) -> None:
    output = tuned.root / "out"
    assert (output / "a" / "a_tune.om").is_file() and (output / "c" / "summary.json").is_file()
    assert [path.name for path in output.rglob("bank")] == ["bank"]
    assert not (output / "b").exists()


def test_models_of_several_kinds_share_run_bank_and_result_file(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "collected").mkdir(parents=True)
    save_model(slow_chain_net(channels=8, extent=48), folder / "chain.onnx")
    save_model(chain_model(["Exp"]), folder / "collected" / "net_0.onnx")
    graph = {"file": "net_0.onnx", "module": "Net", "call": "", "count": 1, "sha256": ""}
    dump = {"schema": DUMP_SCHEMA, "graphs": [graph], "operators": []}
    (folder / "collected" / "dump.json").write_text(json.dumps(dump))
    write_net(_caffe_net(), folder)
    models = find_models(folder)
    assert [model.framework for model in models] == [5, None, 0]
    done = _tune(tmp_path, models, lookup_only=True, framework=None)
    assert [one.error for one in done] == [None] * 3
    results = [one.result for one in done]
    assert all(one is not None and one.om_file is not None for one in results)
    assert len({one.bank for one in results if one is not None}) == 1
    tuned = Tuned(tmp_path, done)
    names = [sections[0]["basic"]["tuning_name"] for sections in tuned.reports.values()]
    assert names == [f"{name}_{_STAMP}" for name in ("chain", "collected", "net")]


def _caffe_net() -> TestNet:
    layer = TestLayer(
        type="Convolution",
        name="conv",
        bottoms=("data",),
        tops=("result",),
        param_name="convolution_param",
        param={"num_output": 8, "kernel_size": 1},
        blobs=(np.ones((8, 8, 1, 1), np.float32), np.ones(8, np.float32)),
    )
    return TestNet(inputs={"data": (1, 8, 24, 24)}, layers=(layer,))


def test_time_limit_is_for_all_models(tmp_path: Path) -> None:
    seen: list[float | None] = []
    now_s = [0.0]

    def take_20_s(context: ModeContext) -> None:
        seen.append(context.settings.tuning_time_limit_s)
        now_s[0] += 20.0

    models = [FoundModel(path=tmp_path / f"{name}.onnx", framework=5) for name in "abcd"]
    modes = {JobType.OPAT: StandInMode(take_20_s)}
    list(
        tune_folder(
            TuneSettings(model=tmp_path, tuning_time_limit_s=100.0),
            models,
            env={},
            cwd=tmp_path,
            progress=_silent,
            now=_NOW,
            engine=EngineParts(clock=lambda: now_s[0], modes=modes),
        )
    )
    assert seen == [100 / 4, 80 / 3, 60 / 2, 40.0]


def test_limit_of_candidates_is_for_all_models(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for number, name in enumerate("abc"):
        save_model(blocks_net([3 + 2 * number]), tmp_path / "models" / f"{name}.onnx")
    done = _tune(tmp_path, find_models(tmp_path / "models"), trials=3, max_tuning_count=5)
    tried = []
    for one in done:
        assert one.result is not None
        operators = one.result.get(OpatResult).operators
        tried.append(sum(len(each.search.trials) for each in operators if each.search is not None))
    assert tried[0] > 0 and sum(tried) == 5 and tried[-1] == 0


def test_models_of_one_name_do_not_share_a_folder(
    tmp_path: Path,
) -> None:
    folders = []

    def note(context: ModeContext) -> None:
        assert context.one_of_many is not None
        folders.append(context.one_of_many.folder)

    models = [FoundModel(path=tmp_path / name, framework=5) for name in ("a.onnx", "a.pb", "b")]
    _tune(tmp_path, models, EngineParts(modes={JobType.OPAT: StandInMode(note)}))
    assert folders == ["a.onnx", "a.pb", "b"]


@pytest.mark.parametrize("error", [TargetError("--soc_version", "no"), OptionError("--x", "no")])
def test_what_no_model_can_help_ends_the_run(tmp_path: Path, error: Exception) -> None:
    calls = []

    def fail(context: ModeContext) -> None:
        calls.append(context.settings)
        raise error

    models = [FoundModel(path=tmp_path / name, framework=5) for name in ("a.onnx", "b.onnx")]
    with pytest.raises(type(error)):
        _tune(tmp_path, models, EngineParts(modes={JobType.OPAT: StandInMode(fail)}))
    assert len(calls) == 1
