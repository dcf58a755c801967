"""`aoe verify --model`: whole models a busy machine left undecided are judged without a search."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.commands import aoe_exit_code
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress, ScriptedRunner
from support.engine.open_rows import parsed
from support.engine.scripted_runs import ScriptedRuns, blocks_net

from aoe import VerifiedBank
from aoe.errors import ModelImportError, ModelNotFoundError, OptionError, WorkerDiedError
from aoe.report.verify import VerifiedBankReport
from aoe.runs.verify_bank import verify
from aoe.runs.verify_models import VerifiedModel
from aoe.runs.verify_records import Holding
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.parts import EngineParts
from aoebank import Bank, Event


@dataclass(slots=True, kw_only=True)
class BusyRunner(ScriptedRunner):
    """A runner whose machine may be busy while whole models are compared."""

    is_busy: Callable[[], bool]

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        self.given_share = 0.3 if task == "compare_models" and self.is_busy() else 1.0
        return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)


class World:
    """A model whose operators were tuned, and a machine that may be busy for whole models."""

    def __init__(self, place: Path, *, is_busy: bool = True) -> None:
        self.place, self.bank, self.model = place, place / "bank", place / "net.onnx"
        self.busy_models = is_busy
        self.gains: Sequence[float] = (1.5,)
        self.untuned: Any = 1.0
        self.lost_at: tuple[int, ...] | None = None
        self.progress = RecordingProgress()
        self.runs = ScriptedRuns(parts={"open_runner": self._runner})
        self.bank.mkdir()
        onnx.save(blocks_net([3, 5]), self.model)

    def _runner(self, device: Any, target: Any, *_: object) -> BusyRunner:
        gains = cycle(self.gains)
        runner = BusyRunner(
            device=device,
            target=target,
            jitter=0.0005,
            drift=0.0,
            model=lambda baseline, tuned: (
                next(gains) if tuned.library is not None else self.untuned
            ),
            model_at=lambda inputs: (
                (lambda baseline, tuned: 0.8 if tuned.library is not None else 1.0)
                if self.lost_at is not None and inputs.shapes.get("x") == self.lost_at
                else None
            ),
            is_busy=lambda: self.busy_models,
        )
        self.runs.runners.append(runner)
        return runner

    @property
    def engine(self) -> EngineParts:
        """The engine of all runs."""
        return self.runs.engine

    def tune(self, **more: Any) -> Any:
        """Tune the model as `aoe` does, with the cheapest search."""
        options = {"trials": 2, "accept_busy": False, "output": self.place / "out", **more}
        return self.runs.tune(self.model, bank=self.bank, **options)

    def verify(self, **options: Any) -> VerifiedBank:
        """Finish what is undecided; records are not measured again."""
        self.runs.runners.clear()
        return verify(
            self.bank,
            **{
                "models": [self.model],
                "only_undecided": True,
                "env": run_environment(self.bank),
                **options,
            },
            cwd=self.place,
            progress=self.progress,
            engine=self.engine,
        )

    def judged(self, **options: Any) -> VerifiedModel:
        """Finish what is undecided, and return the model."""
        (model,) = self.verify(**options).models
        return model

    def verdicts(self) -> list[Event]:
        """Return what the bank says of kernels in models."""
        bank = Bank(self.bank)
        lines = [line for file in bank.iter_files() for line in bank.iter_provenance(file)]
        return [line.event for line in lines if line.event in (Event.KEPT, Event.DROPPED)]

    def records(self) -> list[str]:
        """Return the keys of the bank's records."""
        bank = Bank(self.bank)
        return sorted(one.key for file in bank.iter_files() for one in bank.iter_records(file))

    def asked(self, task: str) -> int:
        """Return how often the runners of the last call were asked for a task."""
        return sum(len(runner.asked(task)) for runner in self.runs.runners)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A bank with kernels whose model a busy machine left undecided."""
    world = World(tmp_path)
    found = world.tune().modes[0]
    assert found.validation.kept == () and "busy" in found.validation.undecided
    assert world.verdicts() == []
    return world


def test_model_a_busy_machine_left_undecided_is_finished_without_a_search(world: World) -> None:
    world.busy_models = False
    model = world.judged()
    assert model.found is not None and model.found.verdict is Holding.HOLDS
    assert model.found.estimate is not None and model.found.estimate.median > 1.4
    assert model.kept and not model.dropped and model.written and model.om_file is None
    assert world.asked("measure_candidates") == 0
    assert world.verdicts() == [Event.KEPT] * len(model.kept)
    assert list(world.place.glob("*_tune.om")) == []
    # the next run believes it: one process is enough
    world.runs.runners.clear()
    assert world.tune().speedup > 1.4
    assert world.asked("measure_candidates") == 0 and world.asked("compare_models") == 1


def test_model_that_gains_nothing_is_decided_too_and_was_no_gain(world: World) -> None:
    world.busy_models, world.gains = False, (0.8,)
    result = world.verify()
    (model,) = result.models
    assert model.found is not None and model.found.verdict is Holding.LOST and model.written
    assert result.holds and set(world.verdicts()) == {Event.DROPPED}
    again = world.judged()
    assert again.found is None and not again.written


def test_model_that_had_a_gain_and_has_none_is_lost(tmp_path: Path) -> None:
    world = World(tmp_path, is_busy=False)
    world.tune()
    assert world.verify().holds
    world.gains = (0.8,)
    result = world.verify()
    (model,) = result.models
    assert model.found is not None and model.found.verdict is Holding.LOST
    assert "REPEAT_TUNE=True" in model.found.reason
    assert not result.holds and VerifiedBankReport(result=result).exit_code == 1


def test_gain_of_another_number_of_cores_is_none_that_was_lost(world: World) -> None:
    world.busy_models = False
    world.tune(core_num=1)
    assert set(world.verdicts()) == {Event.KEPT}
    world.gains = (0.8,)
    result = world.verify()
    (model,) = result.models
    assert model.found is not None and model.found.verdict is Holding.LOST
    assert not model.was_kept and result.holds


@pytest.mark.parametrize(
    ("gains", "expected", "processes"),
    [
        ((1.5,), Holding.HOLDS, 3),
        ((1.03, 1.06, 1.05, 1.07, 1.04), Holding.HOLDS, 5),
        ((0.96, 0.97, 0.98), Holding.LOST, 5),
        ((1.1, 0.98, 1.08, 0.96, 1.02), Holding.UNDECIDED, 10),
        # surely faster by the interval that is printed, not by the one that tuning accepts by
        ((1.0, 1.01, 1.02, 1.03, 1.0), Holding.UNDECIDED, 10),
    ],
)
def test_settled_model_is_compared_until_it_is_decided(
    tmp_path: Path, gains: Sequence[float], expected: Holding, processes: int
) -> None:
    world = World(tmp_path, is_busy=False)
    world.tune()
    world.gains = gains
    result = world.verify()
    (model,) = result.models
    assert model.found is not None and model.found.verdict is expected
    assert model.kept and not model.written
    assert result.holds is (expected is not Holding.LOST)
    runs = [one for runner in world.runs.runners for one in runner.asked("compare_models")]
    assert len(runs) == model.processes == processes
    orders = [one.arguments["terms"].orders for one in runs]
    assert orders[::2] != orders[1::2] and len({*orders}) == 2


def test_model_stays_undecided_on_a_busy_machine_and_where_it_cannot_be_run(world: World) -> None:
    model = world.judged()
    assert model.found is not None and model.found.verdict is Holding.UNDECIDED
    assert "the machine was busy" in model.found.reason
    world.untuned = WorkerDiedError("worker", "died")
    model = world.judged()
    assert model.found is not None and model.found.verdict is Holding.UNDECIDED
    assert "died" in model.found.reason and world.verdicts() == []


def test_model_that_cannot_be_judged_leaves_the_others_their_verdicts(world: World) -> None:
    world.busy_models, broken = False, world.place / "broken.onnx"
    broken.write_bytes(b"no model")
    result = world.verify(models=[broken, world.model])
    first, second = result.models
    assert isinstance(first.error, ModelImportError)
    assert first.found is not None and first.found.verdict is Holding.UNDECIDED
    assert second.found is not None and second.found.verdict is Holding.HOLDS
    assert VerifiedBankReport(result=result).exit_code == first.error.exit_code


def test_missing_model_is_refused_before_records_are_measured(world: World) -> None:
    with pytest.raises(ModelNotFoundError):
        world.verify(models=[world.model, world.place / "none.onnx"], only_undecided=False)
    assert not world.runs.runners


def test_busy_machine_is_believed_where_the_environment_says_so(world: World) -> None:
    how = TuneSettings(model=Path())
    env = {**run_environment(world.bank), "AOE_ACCEPT_BUSY": "1"}
    model = world.judged(how=how, env=env)
    assert model.found is not None and model.found.verdict is Holding.HOLDS
    model = world.judged(how=how, env=env, accept_busy=False, dry_run=True)
    assert model.found is not None and model.found.verdict is not Holding.HOLDS


def test_dry_run_writes_nothing(world: World) -> None:
    world.busy_models = False
    before = {file: file.read_bytes() for file in world.bank.rglob("*") if file.is_file()}
    model = world.judged(dry_run=True)
    assert model.found is not None and model.found.verdict is Holding.HOLDS and not model.written
    after = {file: file.read_bytes() for file in world.bank.rglob("*") if file.is_file()}
    assert before == after


@pytest.mark.parametrize("dry_run", [False, True])
def test_model_is_judged_where_no_run_has_made_a_bank(tmp_path: Path, dry_run: bool) -> None:
    world, home = World(tmp_path), tmp_path / "home"
    home.mkdir()
    env = run_environment(world.bank) | {"TUNE_BANK_PATH": "", "HOME": str(home)}
    (model,) = verify(
        models=[world.model],
        env=env,
        cwd=world.place,
        dry_run=dry_run,
        progress=world.progress,
        engine=world.engine,
    ).models
    assert model.found is None and model.error is None


def test_output_is_the_tuned_model(world: World) -> None:
    world.busy_models = False
    how = TuneSettings(model=Path(), output=world.place / "judged.om")
    model = world.judged(how=how)
    assert model.om_file == world.place / "judged.om" and model.om_file.is_file()


def test_one_file_for_several_tuned_models_is_refused(world: World) -> None:
    how = TuneSettings(model=Path(), output=world.place / "judged.om")
    with pytest.raises(OptionError, match="one file cannot take several tuned models"):
        world.verify(models=[world.model, world.place / "other.onnx"], how=how)


def test_model_the_bank_does_not_know_has_nothing_to_judge(world: World) -> None:
    onnx.save(blocks_net([9], head="LogSoftmax"), world.place / "other.onnx")
    model = world.judged(models=[world.place / "other.onnx"])
    assert model.found is None and model.kept == ()


def test_several_shapes_are_judged_one_by_one(world: World) -> None:
    proto = blocks_net([3, 5])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(proto, world.place / "open.onnx")
    cases = ("x:1,24,32,32", "x:2,24,32,32")
    how = TuneSettings(model=Path(), shape_cases=cases)
    models = world.verify(models=[world.place / "open.onnx"], how=how).models
    assert tuple(model.shapes for model in models) == cases


def test_tuned_model_is_judged_for_the_shapes_it_holds(world: World) -> None:
    proto = blocks_net([3, 5])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(proto, world.model)
    cases = ("x:1,24,32,32", "x:2,24,32,32")
    world.tune(input_shape=[*cases], output=world.place / "tuned.om")
    models = world.verify(models=[world.place / "tuned.om"]).models
    assert tuple(model.shapes for model in models) == cases


def test_range_of_shapes_is_judged_without_a_search(tmp_path: Path) -> None:
    world = World(tmp_path)
    body = (
        "t = MatMul(x, w) v = Relu(t) s = MatMul(v, z) r = Add(s, x) y = LayerNormalization(r, g)"
    )
    weights = "float[64,96] w, float[96,64] z, float[64] g"
    onnx.save(parsed("float[N,S,64] x", body, weights=weights), world.model)
    shapes = "x:1~2,1~40,64"
    world.tune(input_shape=shapes)
    assert world.verdicts() == []
    world.busy_models, before = False, world.records()
    model = world.judged(input_shape=shapes)
    assert model.found is not None and model.found.verdict is Holding.HOLDS
    assert model.shapes == shapes and model.written and world.verdicts()
    assert world.records() == before
    # a settled range is lost where it surely loses at one of its points, as it would be refused
    world.lost_at = (1, 1, 64)
    model = world.judged(input_shape=shapes)
    assert model.found is not None and model.found.verdict is Holding.LOST
    assert model.found.estimate is not None and model.found.estimate.low > 1
    assert "at a point of the range" in model.found.reason and model.kept


@pytest.mark.parametrize("jobs", [(JobType.SGAT,), (JobType.GDAT,)])
def test_modes_that_need_a_search_are_left_to_the_next_run(
    world: World, jobs: tuple[JobType, ...]
) -> None:
    with pytest.raises(OptionError, match="whole models are judged with their operators"):
        world.verify(how=TuneSettings(model=Path(), job_types=jobs))


def test_subgraphs_and_operators_are_judged_without_a_search(world: World) -> None:
    world.busy_models = False
    how = TuneSettings(model=Path(), job_types=(JobType.SGAT, JobType.OPAT))
    model = world.judged(how=how)
    assert model.found is not None and model.found.verdict is Holding.HOLDS
    assert world.asked("measure_candidates") == 0


def test_command_tells_and_its_document_has_the_model(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.place)
    world.busy_models = False
    words = ["verify", str(world.bank), f"--model={world.model}", "--undecided"]
    assert aoe_exit_code([*words, "--dry-run", "--json"], engine=world.engine) == 0
    document = json.loads(capsys.readouterr().out)
    (model,) = document["models"]
    assert model["verdict"] == "holds" and model["kept"] and not model["written"]
    assert model["processes"] == 3
    assert document["records"] == []
    assert aoe_exit_code([*words, "--quiet", "--output=tuned.om"], engine=world.engine) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "whole model net.onnx: holds, 1.50x" in shown and "in 3 processes" in shown
    assert "kept, 0 dropped" in shown
    assert "new verdicts of 1 whole model" in shown and (world.place / "tuned.om").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--accuracy=cosine>=0.9"], "--accuracy: it says how a model is judged"),
        (["--undecided", "--worst"], "no record is measured"),
    ],
)
def test_options_that_say_nothing_here_are_refused(
    world: World, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert aoe_exit_code(["verify", str(world.bank), *words], engine=world.engine) == 2
    assert told in capsys.readouterr().err
