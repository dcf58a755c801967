"""`aoe verify --model`: records of subgraphs measured again in their models; times are scripted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper
from support.commands import aoe_exit_code
from support.engine.fakes import RecordingProgress, ScriptedRunner
from support.engine.models import make_model
from support.engine.scripted_runs import ScriptedRuns, evenly_profiled
from support.engine.subgraph_runs import FusionRun, Run
from support.engine.subgraphs import by_kernels, by_splits, c2f_network
from support.version_banks import keep_out

import aoe
from aoe import VerifiedBank
from aoe.bank.journal import KERNEL_SOURCE
from aoe.errors import ModelImportError, WorkerDiedError
from aoe.execute.messages import ModelPart
from aoe.measurement import Outcome
from aoe.report.verify import VerifiedBankReport
from aoe.runs.subgraphs.verify import NO_MODEL, NOT_THERE, PlacedSubgraph
from aoe.runs.verify_bank import verify
from aoe.runs.verify_records import Holding
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.parts import EngineParts
from aoebank import Bank, Event, Provenance, emit, validate
from aoebank.formats.provenance import provenance_path
from aoebank.model.quarantine import QuarantineEntry
from aoebank.storage.readers.places import DEFAULT_FOLDER

Script = Callable[[ModelPart, ModelPart], Any]


class World:
    """A model whose subgraphs were tuned, its bank, and a machine that measures as scripted."""

    def __init__(self, place: Path, **parts: Any) -> None:
        self.place = place
        self.run: Run | None = None
        self.bank = place / "bank"
        self.model = place / "net.onnx"
        self.script: Script = by_splits(1.2)
        self.share = 1.0
        self.compile_error = ""
        self.runners: list[ScriptedRunner] = []
        self.progress = RecordingProgress()
        self.parts = {
            "resolve_target": ScriptedRuns().resolve,
            "check_toolchain": lambda *_: None,
            "open_runner": self._runner,
        } | parts

    @property
    def engine(self) -> EngineParts:
        """The engine that measures again."""
        return EngineParts(**self.parts)

    def _runner(self, device: Any, target: Any, *_: object) -> ScriptedRunner:
        self.runners.append(
            ScriptedRunner(
                candidate=lambda schedule: 2.0,
                model=lambda baseline, tuned: self.script(baseline, tuned),
                device=device,
                target=target,
                given_share=self.share,
                compile_error=lambda name: self.compile_error,
            )
        )
        return self.runners[-1]

    def verify(self, *models: Path, **settings: Any) -> VerifiedBank:
        """Measure again, in the model that was tuned if no other is given."""
        return verify(
            self.bank,
            models=models or (self.model,),
            **settings,
            env={"PATH": os.environ["PATH"]},
            cwd=self.place,
            progress=self.progress,
            engine=self.engine,
        )

    @property
    def compared(self) -> list[Any]:
        """What the last run was asked to compare, before it judged the whole model."""
        return self.runners[-2].asked("compare_models")

    def file(self) -> Path:
        """Return the bank of subgraphs."""
        (file,) = self.bank.glob("graph/*/*_l2cache.json")
        return file

    def entries(self, event: Event | None = None) -> list[Provenance]:
        """Return the lines of its side-car."""
        found = Bank(self.bank).iter_provenance(self.file())
        return [entry for entry in found if event in (None, entry.event)]

    def strategies(self) -> dict[str, Any]:
        """Return what the records say by key."""
        return {one.key: one.strategy for one in Bank(self.bank).iter_records(self.file())}

    def change_noted(self, **facts: Any) -> None:
        """Let records have been measured in an environment that differs."""
        file = provenance_path(self.file())
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            line.get("fingerprint", {}).update(facts)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which subgraphs were rewritten; it is copied, not changed."""
    place = tmp_path_factory.mktemp("rewritten")
    Run(place).tune()
    return place


@pytest.fixture
def rewrites(rewritten: Path, tmp_path: Path) -> World:
    """A bank with rewritten subgraphs."""
    shutil.copytree(rewritten, tmp_path, dirs_exist_ok=True)
    world = World(tmp_path)
    world.run = Run(tmp_path)
    return world


def test_what_holds_gets_its_new_figures_and_who_measured_them(rewrites: World) -> None:
    before = rewrites.strategies()
    rewrites.script = by_splits(1.4)
    result = rewrites.verify()
    assert before and len(result.records) == len(before) and result.passed_over == ()
    assert {one.found.verdict for one in result.records} == {Holding.HOLDS}
    assert all(one.written and one.model == rewrites.model for one in result.records)
    after = rewrites.strategies()
    assert after.keys() == before.keys()
    for key, strategy in after.items():
        assert strategy["end2EndTime"] != before[key]["end2EndTime"]
        assert {**strategy, "end2EndTime": 0} == {**before[key], "end2EndTime": 0}
    noted = rewrites.entries(Event.RESERVED)
    assert {entry.key for entry in noted} == before.keys()
    for entry in noted:
        assert entry.search["method"] == "verify" and entry.search["verdict"] == "holds"
        assert {"host", "by", "seed", "model_sha256"} <= set(entry.search)
        assert entry.search["bytes_around"] > 0 and entry.op_names
        assert {"onnxruntime", "cpu_model", KERNEL_SOURCE} <= set(entry.fingerprint)
    assert list(validate(rewrites.bank).findings) == []


def test_measured_as_in_a_search_beside_its_neighbours_in_the_model(rewrites: World) -> None:
    rewrites.verify()
    assert len(rewrites.compared) == len(rewrites.strategies())
    for call in rewrites.compared:
        names = (call.arguments["baseline"].model.name, call.arguments["tuned"].model.name)
        assert names == ("subgraph.onnx", "candidate.onnx")


def test_later_runs_know_the_gain_as_measured_last(rewrites: World) -> None:
    rewrites.script = by_splits(1.4)
    (one, *_) = rewrites.verify().records
    assert one.found.estimate is not None
    assert rewrites.run is not None
    again = rewrites.run.tune()
    stored = {tuned.subgraph.graph_id: tuned.speedup for tuned in again.subgraphs}
    assert stored[one.one.record.key] == pytest.approx(one.found.estimate.median, rel=1e-3)


@pytest.mark.parametrize("gain", [0.8, 1.0 / 1.2])
def test_what_no_longer_holds_is_said_and_written(rewrites: World, gain: float) -> None:
    rewrites.script = by_splits(gain)
    result = rewrites.verify()
    assert {one.found.verdict for one in result.records} == {Holding.LOST}
    assert not result.holds and VerifiedBankReport(result=result).exit_code == 1
    assert len(rewrites.entries(Event.RESERVED)) == len(result.records)


@pytest.mark.parametrize("failure", [Outcome.CORRECTNESS, WorkerDiedError("worker", "died")])
def test_form_that_does_not_work_is_lost_and_nothing_is_written(
    rewrites: World, failure: Any
) -> None:
    before = (rewrites.strategies(), rewrites.entries())
    rewrites.script = lambda baseline, tuned: failure
    result = rewrites.verify()
    assert {one.found.verdict for one in result.records} == {Holding.LOST}
    assert (rewrites.strategies(), rewrites.entries()) == before


def test_busy_machine_and_dry_run_write_nothing(rewrites: World) -> None:
    before = (rewrites.strategies(), rewrites.entries())
    assert rewrites.verify(dry_run=True).records
    rewrites.share = 0.3
    assert {one.found.verdict for one in rewrites.verify().records} == {Holding.UNDECIDED}
    assert (rewrites.strategies(), rewrites.entries()) == before


def test_record_another_run_has_changed_meanwhile_is_not_touched(rewrites: World) -> None:
    def changes(baseline: ModelPart, tuned: ModelPart) -> float:
        text = rewrites.file().read_text()
        rewrites.file().write_text(text.replace('"end2EndTime":', '"end2EndTime":1'))
        return 1.2

    rewrites.script = changes
    assert not rewrites.verify(sample=1).records[0].written


# ---- which records ----


def test_without_its_model_a_record_is_passed_over_with_what_to_give(
    rewrites: World, capsys: pytest.CaptureFixture[str]
) -> None:
    result = verify(
        rewrites.bank,
        env={"PATH": os.environ["PATH"]},
        cwd=rewrites.place,
        progress=rewrites.progress,
    )
    count = len(rewrites.strategies())
    assert result.records == () and result.left == 0
    assert [one.reason for one in result.passed_over] == [NO_MODEL] * count
    emit(VerifiedBankReport(result=result), as_json=False, no_color=True)
    assert (
        "not measured: a subgraph is measured in its model, which --model=FILE gives"
        in " ".join(capsys.readouterr().out.split())
    )


def test_record_of_another_model_is_passed_over_and_of_several_models_found(
    rewrites: World,
) -> None:
    other = rewrites.place / "other.onnx"
    onnx.save(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["y"]), other)
    count = len(rewrites.strategies())
    assert [one.reason for one in rewrites.verify(other).passed_over] == [NOT_THERE] * count
    found = rewrites.verify(other, rewrites.model, dry_run=True)
    assert found.passed_over == () and {one.model for one in found.records} == {rewrites.model}


def test_tuned_model_gives_the_model_in_it(rewrites: World) -> None:
    (tuned,) = rewrites.place.rglob("*.om")
    found = rewrites.verify(tuned, dry_run=True)
    assert found.passed_over == () and {one.model for one in found.records} == {tuned}


def test_sample_worst_and_stale_only_hold_for_subgraphs(rewrites: World) -> None:
    count = len(rewrites.strategies())
    one = rewrites.verify(sample=1, worst=True, dry_run=True)
    assert len(one.records) == 1 and one.left == count - 1
    assert rewrites.verify(stale_only=True).records == ()
    rewrites.change_noted(onnxruntime="1.0.0")
    stale = rewrites.verify(stale_only=True)
    assert len(stale.records) == count
    assert "onnxruntime 1.0.0" in " ".join(stale.records[0].one.drift.soft)
    assert rewrites.verify(stale_only=True).records == ()


def test_rule_that_no_longer_fits_is_a_lost_gain(
    rewrites: World,
) -> None:
    rewrites.parts["rules"] = {}
    result = rewrites.verify()
    assert rewrites.compared == [] and not result.holds
    assert all(one.found.reason.startswith("constraints: ") for one in result.records)


def test_record_nobody_can_read_is_passed_over(rewrites: World) -> None:
    text = rewrites.file().read_text()
    rewrites.file().write_text(text.replace("convolution-split@1", "somebody else's"))
    result = rewrites.verify()
    assert result.records == ()
    assert all("no rule of this engine" in one.reason for one in result.passed_over)


def test_record_in_quarantine_is_passed_over(rewrites: World) -> None:
    first, *others = Bank(rewrites.bank).iter_records(rewrites.file())
    entry = QuarantineEntry(
        key=first.key, reason="wrong", who="Ann", when="2026-01-01T00:00:00Z", soc_version=None
    )
    keep_out(rewrites.bank, entry)
    result = rewrites.verify(dry_run=True)
    assert [one.reason for one in result.passed_over] == ["in quarantine: wrong"]
    assert len(result.records) == len(others)


def test_model_that_is_not_there_is_an_error_before_anything_is_measured(rewrites: World) -> None:
    with pytest.raises(ModelImportError, match=r"nowhere\.onnx"):
        rewrites.verify(rewrites.place / "nowhere.onnx")
    assert rewrites.runners == []


# ---- the command and the function ----


def test_command_takes_models_and_its_document_names_them(
    rewrites: World, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["verify", str(rewrites.bank), f"--model={rewrites.model}", "--dry-run"]
    assert aoe_exit_code([*arguments, "--json"], engine=rewrites.engine) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert {one["model"] for one in records} == {str(rewrites.model)}
    assert {one["op_type"] for one in records} == {"subgraph"}
    assert aoe_exit_code([*arguments, "--quiet"], engine=rewrites.engine) == 0
    assert "the operator or subgraph alone" in capsys.readouterr().out


def test_function_takes_models(rewrites: World) -> None:
    found = aoe.verify(
        rewrites.bank, models=[str(rewrites.model)], dry_run=True, engine=rewrites.engine
    )
    assert found.records and found.passed_over == ()


def test_shapes_a_model_leaves_open_are_given(rewrites: World) -> None:
    proto = c2f_network(3)
    (value,) = proto.graph.input
    extents = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(proto, rewrites.place / "open.onnx")
    shape = f"{value.name}:{','.join(map(str, extents))}"
    found = rewrites.verify(rewrites.place / "open.onnx", input_shape=shape, dry_run=True)
    assert found.records and found.passed_over == ()


@pytest.mark.parametrize("is_known", [True, False])
def test_whole_model_is_judged_with_the_rewrites_of_the_bank_alone(
    rewrites: World, is_known: bool
) -> None:
    before = rewrites.strategies()
    if not is_known:
        shutil.rmtree(rewrites.bank / "graph")
    how = TuneSettings(model=Path(), job_types=(JobType.SGAT, JobType.OPAT))
    (model,) = rewrites.verify(how=how, only_undecided=True).models
    assert (model.found is not None and model.found.verdict is Holding.HOLDS) is is_known
    assert bool(model.kept) is is_known
    calls = [call for runner in rewrites.runners for call in runner.asked("compare_models")]
    measured = {call.arguments["baseline"].model.name for call in calls}
    assert measured and measured.isdisjoint({"subgraph.onnx", "piece.onnx"})
    if is_known:
        assert rewrites.strategies() == before
    else:
        assert not list(rewrites.bank.glob("graph/*/*_l2cache.json"))


def test_dry_run_knows_the_rewrites_that_lie_beside_the_root_of_a_bank(rewrites: World) -> None:
    root = rewrites.place / DEFAULT_FOLDER
    root.parent.mkdir(parents=True)
    shutil.move(rewrites.bank, root)
    shutil.move(root / "graph", root.with_name("graph"))
    rewrites.bank = root
    how = TuneSettings(model=Path(), job_types=(JobType.SGAT, JobType.OPAT))
    (model,) = rewrites.verify(how=how, only_undecided=True, dry_run=True).models
    assert model.kept and not model.written


# ---- kernels ----

_CHAIN = ("Exp", "Neg", "Abs", "Sqrt", "Tanh")


@pytest.fixture
def kernels(tmp_path: Path) -> World:
    """A bank with a subgraph some of whose nodes became one kernel."""
    names = [f"{op_type}_{number}" for number, op_type in enumerate(_CHAIN)]
    nodes = [
        helper.make_node(op_type, [before], [name], name)
        for op_type, before, name in zip(_CHAIN, ["x", *names], names, strict=False)
    ]
    run = FusionRun(tmp_path, make_model(nodes, {"x": (1, 256, 64)}, [names[-1]]))
    run.script = by_kernels(1.3)
    result = run.tune(search="bayesian")
    assert result.used_ids
    world = World(tmp_path, profile_model=evenly_profiled)
    world.script = run.script
    return world


def test_kernels_of_a_subgraph_are_measured_together_as_when_they_were_chosen(
    kernels: World,
) -> None:
    result = kernels.verify()
    assert result.passed_over == ()
    (one,) = [one for one in result.records if isinstance(one.one.answer, PlacedSubgraph)]
    assert isinstance(one.one.answer, PlacedSubgraph) and one.one.answer.strategy.groups
    assert one.found.verdict is Holding.HOLDS and one.written
    (call,) = kernels.compared
    assert call.arguments["baseline"].model.name == "piece.onnx"
    assert call.arguments["tuned"].library is not None


def test_kernels_that_cannot_be_built_are_a_lost_gain(
    kernels: World,
) -> None:
    kernels.compile_error = "no such instruction"
    result = kernels.verify()
    (one,) = [one for one in result.records if isinstance(one.one.answer, PlacedSubgraph)]
    assert one.found.verdict is Holding.LOST and not one.written
    assert one.found.reason == "compile: no such instruction"


def test_kernels_without_records_of_their_own_are_passed_over(kernels: World) -> None:
    for file in Bank(kernels.bank).iter_files():
        if file != kernels.file():
            file.unlink()
    result = kernels.verify()
    assert result.records == ()
    assert all("the bank has no record of its" in one.reason for one in result.passed_over)
