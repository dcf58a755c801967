"""The whole engine on small models: tune, tune again, run, compare, interrupt."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import optuna
import pytest
from onnx import helper
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from support.engine.cpu import CPU, open_session
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress
from support.engine.models import Array, make_model, matmul_net, save_model, two_chains_net
from support.engine.scripted_runs import ScriptedRuns

import aoe
from aoe.cli.app import main
from aoe.device.cpu.device import Cpu
from aoe.om.file import read_manifest
from aoe.ort.inputs import read_input_sets
from aoe.ort.sessions import session_options
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import tune_with
from aoe.tuner.mode import TuneSettings
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoe.tuner.progress import Progress, progress_of
from aoebank import Bank

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@dataclass(frozen=True)
class Place:
    """A folder with a model and a bank, and runs in it."""

    root: Path

    @property
    def bank(self) -> Path:
        return self.root / "bank"

    @property
    def model(self) -> Path:
        return self.root / "net.onnx"

    def tune(
        self,
        name: str,
        *,
        env: dict[str, str] | None = None,
        engine: EngineParts = REAL_ENGINE,
        progress: Progress | None = None,
        **settings: Any,
    ) -> OpatResult:
        """Tune the model into `root/name`."""
        facts: dict[str, Any] = {
            "model": self.model,
            "output": self.root / name,
            "core_num": 2,
            "accept_busy": True,
            "trials": 2,
            "input_shape": "x:1,16,96,96",
        }
        self.progress.events.clear()
        tuned = tune_with(
            TuneSettings(**(facts | settings)),
            env=run_environment(self.bank) | (env or {}),
            cwd=self.root,
            progress=progress or self.progress,
            now=_NOW,
            engine=engine,
        )
        return tuned.get(OpatResult)

    @property
    def progress(self) -> RecordingProgress:
        return _PROGRESS

    def bank_files(self) -> dict[str, bytes]:
        """Return the bank's files but for the side-cars."""
        return {file.name: file.read_bytes() for file in self.bank.rglob("*.json")}


_PROGRESS = RecordingProgress()


def _scripted() -> EngineParts:
    """Return an engine that measures and links nothing, but tunes for the same target."""
    return ScriptedRuns(target=lambda _: CPU.describe(2)).engine


@dataclass(frozen=True)
class Tuned:
    """A place where one run is over."""

    place: Place
    result: OpatResult
    published: list[Any]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tuned]:
    """Return the first run on an empty bank; every report it published was kept."""
    place = Place(tmp_path_factory.mktemp("e2e"))
    place.bank.mkdir()
    save_model(two_chains_net(), place.model)
    published: list[Any] = []

    def look(_: object = None) -> None:
        for file in (place.root / "first").glob("aoe_result_opat_*.json"):
            if (report := json.loads(file.read_text())) not in published:
                published.append(report)

    result = place.tune("first", progress=progress_of(look), study="first.log")
    look()
    yield Tuned(place, result, published)


def _bank_file(tuned: Tuned) -> Path:
    target = tuned.result.target
    soc, cores = target.soc_version, target.core_num
    return Path(soc, "unified_bank", f"{soc}_{cores}_AiCore_elementwise.json")


def _feed() -> dict[str, Array]:
    return {"x": np.random.default_rng(3).standard_normal((1, 16, 96, 96)).astype(np.float32)}


def _untuned(model: Path, feed: dict[str, Array]) -> Any:
    session = open_session(model, session_options(threads=1, optimize=True))
    return session.run(None, feed)[0]


# ---- the first run ----


def test_first_run_adds_what_is_better_and_counts_it(first: Tuned) -> None:
    report = first.published[-1][1]["OPAT"]
    assert report["opat_tuning_result"] == "tuning successful"
    assert report["repo_summary"]["repo_add_num"] == 2
    assert report["repo_summary"]["repo_hit_num"] == 0
    assert report["repo_summary"]["total_num"] == 2
    families = {str(entry["op_type"]) for entry in report["repo_modified_operators"]}
    assert families and "elementwise" not in families


def test_bank_has_a_record_for_each_in_its_place(first: Tuned) -> None:
    bank = Bank(first.place.bank)
    (file,) = bank.iter_files()
    assert file.relative_to(first.place.bank) == _bank_file(first)
    assert len(list(bank.iter_records(file))) == 2


def test_every_published_report_is_whole_and_keeps_the_identities(first: Tuned) -> None:
    assert len(first.published) >= 5
    for basic, body in first.published:
        ended = body["OPAT"]["opat_tuning_result"] == "tuning successful"
        assert ("tuning_time(s)" in basic["basic"]) is ended
        assert ("model_performance_improvement" in body["OPAT"]) is ended
        repo = body["OPAT"]["repo_summary"]
        assert repo["repo_hit_num"] == repo["repo_update_num"] + repo["repo_reserved_num"]
        assert repo["total_num"] == (
            repo["repo_add_num"] + repo["repo_hit_num"] + repo["repo_unsatisfied_num"]
        )
    results = [body["OPAT"]["opat_tuning_result"] for _, body in first.published]
    assert set(results[:-1]) == {"tuning incomplete"}


def test_files_are_named_as_aoe_names_them(first: Tuned) -> None:
    out = first.place.root / "first"
    name = f"aoe_result_opat_20260102030405678_pid{os.getpid()}.json"
    assert first.result.result_file == out / name
    assert first.result.om_file == out / "net_tune.om"
    found = {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}
    assert {
        "net_tune.om",
        "summary.json",
        "profiling/before_tuning/op_summary.csv",
        "profiling/after_tuning/op_summary.csv",
        first.result.result_file.name,
    } <= found
    assert [name for name in found if name.startswith("op_tuning/")]
    assert str("bank" / _bank_file(first)) in found


def test_optuna_finds_the_trials_of_every_search_in_the_study(first: Tuned) -> None:
    storage = JournalStorage(JournalFileBackend(str(first.place.root / "first.log")))
    found = {
        one.user_attrs["workload_key"]: optuna.load_study(
            study_name=one.study_name, storage=storage
        )
        for one in optuna.get_all_study_summaries(storage)
    }
    assert found.keys() == {one.operator.key for one in first.result.operators if one.search}
    for operator in first.result.operators:
        trials = operator.search.trials if operator.search is not None else ()
        for trial, told in zip(trials, found[operator.operator.key].trials, strict=True):
            assert told.params.items() <= trial.configuration.items()
            assert told.state.is_finished() and told.user_attrs
            if trial.measurement.is_correct:
                assert told.value == trial.measurement.speedup
                assert max(told.intermediate_values) == len(trial.measurement.ratios)


def test_bank_beside_the_model_has_what_the_model_uses(first: Tuned) -> None:
    beside = Bank(first.place.root / "first" / "bank")
    (file,) = beside.iter_files()
    used = {kernel.key for kernel in first.result.validation.kept}
    assert {record.key for record in beside.iter_records(file)} == used
    assert {entry.key for entry in beside.iter_provenance(file)} == used


def test_tuned_model_computes_what_the_untuned_one_does(first: Tuned) -> None:
    model = aoe.load(first.result.om_file)
    assert model.fallback_reason == ""
    assert "tuned for" in repr(model) and "<table>" in model._repr_html_()
    assert {row["name"] for row in model.to_records()} == {k.name for k in model.manifest.kernels}
    feed = _feed()
    np.testing.assert_allclose(
        model.run(None, feed)[0], _untuned(first.place.model, feed), rtol=1e-4, atol=1e-5
    )


def test_manifest_names_the_records_the_kernels_came_from(first: Tuned) -> None:
    manifest = read_manifest(first.result.om_file)
    bank = Bank(first.place.bank)
    (file,) = bank.iter_files()
    keys = {record.key for record in bank.iter_records(file)}
    assert {kernel.key for kernel in manifest.kernels} <= keys
    assert {kernel.bank_file for kernel in manifest.kernels} == {file.name}
    nodes = {node.name for node in onnx.load(str(first.place.model)).graph.node}
    assert {name for kernel in manifest.kernels for name in kernel.op_names} <= nodes
    assert manifest.core_num == first.result.target.core_num == CPU.describe(2).core_num


def test_summary_is_one_strict_document(first: Tuned) -> None:
    summary = json.loads((first.place.root / "first" / "summary.json").read_text())
    assert summary["repo"] == {"add": 2, "update": 0, "reserved": 0, "unsatisfied": 0}
    assert summary["speedup"] > 0
    assert summary["baseline_ms"] > 0


# ---- the second run ----


@pytest.fixture(scope="module")
def before_second(first: Tuned) -> dict[str, bytes]:
    """Return the bank's files before the second run."""
    return first.place.bank_files()


@pytest.fixture(scope="module")
def second(first: Tuned, before_second: dict[str, bytes]) -> OpatResult:
    """Return a second run on the bank of the first."""
    return first.place.tune("second")


def test_second_run_finds_everything_and_tunes_nothing(first: Tuned, second: OpatResult) -> None:
    assert all(tuned.search is None for tuned in second.operators)
    repo = json.loads(second.result_file.read_text())[1]["OPAT"]["repo_summary"]
    assert repo["repo_hit_num"] == repo["repo_reserved_num"] == repo["total_num"] == 2
    assert second.profile.is_recalled and not first.result.profile.is_recalled


def test_second_run_writes_the_same_model_byte_for_byte(first: Tuned, second: OpatResult) -> None:
    files = [first.result.om_file, second.om_file]
    with zipfile.ZipFile(files[0]) as one, zipfile.ZipFile(files[1]) as other:
        assert one.namelist() == other.namelist()
        differing = [name for name in one.namelist() if one.read(name) != other.read(name)]
    assert differing == []
    assert filecmp.cmp(*files, shallow=False)


def test_second_run_leaves_the_records_alone(
    first: Tuned, before_second: dict[str, bytes], second: OpatResult
) -> None:
    assert first.place.bank_files() == before_second


def test_built_in_bank_answers_where_the_custom_one_is_empty(first: Tuned, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.bank.mkdir()
    shutil.copy(first.place.model, place.model)
    before = first.place.bank_files()
    result = place.tune("out", env={"AOE_BUILT_IN_BANK": str(first.place.bank)}, engine=_scripted())
    added = [o for o in result.operators if o.schedule is not None]
    assert added and {o.reason for o in added} == {"in the built-in bank"}
    assert not any(o.search for o in added)
    assert first.place.bank_files() == before
    assert not place.bank_files()
    assert [path.name for path in (place.root / "out/bank").rglob("*.json")] == [
        path.name for path in (first.place.root / "first/bank").rglob("*.json")
    ]


@pytest.mark.slow
def test_repeat_tune_searches_hits_again(first: Tuned, tmp_path: Path) -> None:
    copy = Place(tmp_path / "copy")
    shutil.copytree(first.place.root, copy.root)
    result = copy.tune("repeat", repeat_tune=True)
    assert all(tuned.search is not None for tuned in result.operators)
    repo = json.loads(result.result_file.read_text())[1]["OPAT"]["repo_summary"]
    assert repo["repo_hit_num"] == repo["total_num"] == 2
    assert repo["repo_add_num"] == 0
    assert aoe.load(result.om_file).run(None, _feed())


def test_time_limit_of_nothing_leaves_the_model_untuned_and_proves_nothing(
    first: Tuned, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    place.bank.mkdir()
    shutil.copy(first.place.model, place.model)
    result = place.tune("out", tuning_time_limit_s=0.0, engine=_scripted())
    assert result.validation.kept == ()
    assert read_manifest(result.om_file).kernels == ()
    assert list(place.bank.rglob("*.json")) == []
    np.testing.assert_allclose(
        aoe.load(result.om_file).run(None, _feed())[0],
        _untuned(place.model, _feed()),
        rtol=1e-5,
    )


def test_damaged_bank_file_is_set_aside_and_the_run_goes_on(first: Tuned, tmp_path: Path) -> None:
    copy = Place(tmp_path / "copy")
    shutil.copytree(first.place.root, copy.root)
    (file,) = Bank(copy.bank).iter_files()
    torn = file.read_bytes()[:-30]
    file.write_bytes(torn)
    result = copy.tune("again", engine=_scripted())
    (damaged,) = result.damaged
    assert damaged.aside is not None and damaged.aside.read_bytes() == torn
    assert result.validation.kept
    (report,) = (copy.root / "again").glob("aoe_result_opat_*.json")
    assert json.loads(report.read_text())[1]["OPAT"]["opat_tuning_result"] == "tuning successful"


@pytest.mark.slow
def test_edited_record_is_said_and_tuned_again(first: Tuned, tmp_path: Path) -> None:
    copy = Place(tmp_path / "copy")
    shutil.copytree(first.place.root, copy.root)
    (file,) = Bank(copy.bank).iter_files()
    file.write_text(file.read_text().replace('["vectorize", "y", ', '["vectorize", "z", ', 1))
    result = copy.tune("edited")
    (warning,) = [text for text in copy.progress.texts("warn") if "counts as a miss" in text]
    assert "z: vectorize" in warning and "no such stage (got z" in warning
    assert sorted(tuned.search is None for tuned in result.operators) == [False, True]
    assert aoe.load(result.om_file).run(None, _feed())


# ---- models ONNX Runtime keeps ----


def test_model_with_nothing_to_tune_is_packed_as_it_is(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.bank.mkdir()
    save_model(matmul_net(width=32), place.model)
    result = place.tune("out", input_shape=None, engine=_scripted())
    assert result.operators == ()
    feed = {"x": np.ones((4, 32), np.float32)}
    assert np.array_equal(aoe.load(result.om_file).run(None, feed)[0], _untuned(place.model, feed))
    assert list(place.bank.rglob("*")) == []


def test_workspace_is_used_without_output(first: Tuned, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.bank.mkdir()
    save_model(matmul_net(width=32), place.model)
    env = {"ASCEND_WORK_PATH": str(tmp_path / "work")}
    result = place.tune("unused", env=env, output=None, input_shape=None, engine=_scripted())
    assert result.om_file.is_file()
    assert result.om_file.parent.parts[-3:] == (
        "net_20260102030405678",
        "tunespace",
        "result",
    )
    assert (result.om_file.parent / "summary.json").is_file()


# ---- the commands that use a tuned model ----


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `aoe` in this process: (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


Command = Callable[..., tuple[int, str, str]]


def test_run_computes_random_inputs(first: Tuned, command: Command, tmp_path: Path) -> None:
    om = first.result.om_file
    code, out, err = command("run", om, "--input", "random", "--output", tmp_path / "out")
    assert (code, err) == (0, "")
    kernels = len(read_manifest(om).kernels)
    assert kernels
    assert f"tuned model, {kernels} kernels" in out
    assert np.load(tmp_path / "out" / "y.npy").shape == (1, 16, 96, 4)


@pytest.mark.parametrize("form", ["{}", "x={}", "x:{}"])
def test_run_computes_files(first: Tuned, command: Command, tmp_path: Path, form: str) -> None:
    feed = _feed()
    np.save(tmp_path / "in.npy", feed["x"])
    om = first.result.om_file
    source = form.format(tmp_path / "in.npy")
    code, out, _ = command("run", om, "--input", source, "--output", tmp_path, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "aoe.run/1"
    assert document["tuned"]
    assert document["outputs"][0]["name"] == "y"
    expected = _untuned(first.place.model, feed)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("array", "code", "words"),
    [
        (np.zeros((1, 16, 96, 95), np.float32), 2, "another shape"),
        (np.zeros((1, 16, 96, 96), np.float64), 2, "another element type"),
        (np.array(["text"]), 2, "another element type"),
    ],
)
def test_run_refuses_arrays_that_do_not_fit(
    first: Tuned, command: Command, tmp_path: Path, array: Array, code: int, words: str
) -> None:
    np.save(tmp_path / "in.npy", array)
    om = first.result.om_file
    done = command("run", om, "--input", tmp_path / "in.npy")
    assert done[0] == code
    assert words in done[2]


def test_run_refuses_files_that_are_no_arrays(
    first: Tuned, command: Command, tmp_path: Path
) -> None:
    om = first.result.om_file
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.npy").write_text("hello")
    np.savez(tmp_path / "many.npz", a=np.ones(1), b=np.ones(1))
    np.save(tmp_path / "objects.npy", np.array([{}], object))
    for name in ("gone.npy", "empty.npy", "text.npy", "many.npz", "objects.npy"):
        code, _, err = command("run", om, "--input", tmp_path / name)
        assert code == 3, name
        assert name in err
    code, _, err = command("run", om, "--input", "z=x.npy")
    assert code == 2
    assert "no such input" in err


def test_run_refuses_what_is_no_tuned_model(first: Tuned, command: Command, tmp_path: Path) -> None:
    for file in (tmp_path / "gone.om", first.place.model):
        code, out, _ = command("run", file, "--json")
        assert code == 3
        assert json.loads(out)["error"]["code"] == "AOE070"


def test_run_warns_on_standard_error_when_it_falls_back(
    first: Tuned, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cpu, "missing_features", lambda self, needed: ("quantum",))
    code, out, err = command("run", first.result.om_file, "--json")
    assert code == 0
    assert "this CPU lacks quantum" in err
    assert json.loads(out)["tuned"] is False
    assert "quantum" in json.loads(out)["fallback_reason"]


def test_benchmark_compares_with_the_model_inside(first: Tuned, command: Command) -> None:
    code, out, _ = command("benchmark", first.result.om_file, "--pairs", 6, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "aoe.benchmark/1"
    assert document["same_results"]
    assert document["pairs"] == 6
    assert document["speedup_low"] <= document["speedup"] <= document["speedup_high"]


def test_benchmark_compares_two_files(first: Tuned, command: Command) -> None:
    code, out, err = command(
        "benchmark",
        first.result.om_file,
        "--vs",
        first.place.model,
        "--input_shape=x:1,16,96,96",
        "--pairs=6",
        "--threads=1",
    )
    assert code == 0, err
    assert "same results" in out
    assert "6 pairs, 1 thread)" in out


@pytest.mark.slow
def test_benchmark_compares_streams(first: Tuned, command: Command) -> None:
    code, out, err = command("benchmark", first.result.om_file, "--pairs=6", "--streams=2")
    assert code == 0, err
    assert out.count("runs/s") == 2
    assert "6 pairs, 2 streams, each of 1 thread)" in out


def test_benchmark_refuses_an_open_shape(first: Tuned, command: Command) -> None:
    code, _, err = command("benchmark", first.place.model, "--vs", first.place.model)
    assert code == 3
    assert "--input_shape" in err


def test_benchmark_of_an_untuned_model_asks_against_what(first: Tuned, command: Command) -> None:
    code, _, err = command("benchmark", first.place.model)
    assert code == 2
    assert "--vs" in err and "only shows noise" in err


# ---- real inputs ----


@pytest.mark.slow
def test_model_that_made_up_inputs_break_is_tuned_run_and_timed_on_real_ones(
    command: Command, tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Mod", ["number", "by"], ["rest"]),  # zero is no divisor
        helper.make_node("Reshape", ["x", "shape"], ["rows"]),
        helper.make_node("Cast", ["text"], ["factor"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["rows", "factor"], ["y"]),
    ]
    names = {"x": (4, 6), "number": (3,), "by": (3,), "shape": (2,), "text": (1,)}
    kinds = onnx.TensorProto
    types = dict.fromkeys(("number", "by", "shape", "rest"), kinds.INT64) | {"text": kinds.STRING}
    place = Place(tmp_path)
    place.bank.mkdir()
    save_model(make_model(nodes, names, ["rest", "y"], types=types), place.model)
    for number, text in enumerate(("2.0", "0.5")):
        arrays = {
            "x": np.ones((4, 6), np.float32),
            "number": np.array([7, 8, 9]),
            "by": np.array([2, 3, 4]),
            "shape": np.array([8, 3]),
            "text": np.array([text]),
        }
        np.savez(tmp_path / f"{number}.npz", **arrays)
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "sets").mkdir()
    for number in (0, 1):
        (tmp_path / f"{number}.npz").rename(tmp_path / "sets" / f"{number}.npz")
    om = place.tune("out", input_shape=None, inputs=read_input_sets(tmp_path / "sets")).om_file
    options = [f"--input={name}:{tmp_path / name}.npy" for name in names]
    code, out, err = command("run", om, *options, "--json")
    assert code == 0, err
    assert [output["shape"] for output in json.loads(out)["outputs"]] == [[3], [8, 3]]
    code, out, err = command("benchmark", om, "--inputs", tmp_path / "sets", "--pairs=6", "--json")
    assert code == 0, err
    assert json.loads(out)["same_results"]


# ---- Ctrl-C ----


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_signal_in_the_middle_keeps_records_and_leaves_nothing_else(
    first: Tuned, tmp_path: Path, number: signal.Signals, expected: int
) -> None:
    place = Place(tmp_path)
    place.bank.mkdir()
    shutil.copy(first.place.model, place.model)
    command = [
        sys.executable,
        "-c",
        "from aoe.cli.app import main; main()",
        f"--model={place.model}",
        f"--output={tmp_path / 'out'}",
        "--input_shape=x:1,16,96,96",
        "--trials=8",
    ]
    env = {**os.environ, "TUNE_BANK_PATH": str(place.bank), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "[1/2]" in line:
                process.send_signal(number)
                break
        seen.append(process.stderr.read())
        code = process.wait(timeout=60)
    assert code == expected, seen
    assert not list(tmp_path.glob("aoe_*"))
    assert "interrupted: what was found so far is in the bank" in "".join(seen)
    (file,) = Bank(place.bank).iter_files()
    assert len(list(Bank(place.bank).iter_records(file))) == 1
    (report,) = (tmp_path / "out").glob("aoe_result_opat_*.json")
    assert json.loads(report.read_text())[1]["OPAT"]["opat_tuning_result"] == "tuning incomplete"
    assert not (tmp_path / "out" / "net_tune.om").exists()
    assert not list(tmp_path.glob("aoe_*"))
