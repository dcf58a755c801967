"""Adding a kind of task takes its file and a line of the registry: every command then knows it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.commands import aoe_exit_code
from support.documents import find_faults
from support.engine.ladders import POLICY, RUNGS, Found, LadderTask
from support.engine.models import save_model
from support.engine.scripted_runs import ScriptedRuns, blocks_net
from support.engine.tuning import make_measurement

from aoe.bank.journal import BankJournal
from aoe.bank.remembered import remembered_from_json, remembered_to_json
from aoe.bank.stored import Stored
from aoe.bank.task_bank import TaskBank
from aoe.bank.verdicts import BankNote
from aoe.execute.accuracy import Deviation
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.execute.tasks import ModelComparison
from aoe.execute.workers.measure_pool import SerialExecutor
from aoe.measurement import Measurement, accepts, estimate_speedup
from aoe.om.file import Manifest, read_manifest
from aoe.results.files import ModelReport, RepoOutcome, TuningResult, write_json
from aoe.runs.model_mode import (
    ModelTuning,
    check_search,
    run_facts,
    run_model,
    task_members,
)
from aoe.runs.opening import shared_context
from aoe.runs.planning import KindPlan, compared_with
from aoe.runs.tuned_model import write_tuned_model
from aoe.tasks.tuned_task import TunedTask
from aoe.tuner.live_report import LiveReport
from aoe.tuner.mode import JobType, ModeContext
from aoe.tuner.registry import KINDS, TaskKind
from aoe.tuner.reuse.book import ReuseBook, reuse_summary
from aoe.tuner.reuse.earlier import EarlierResult, EarlierTarget, EarlierTask
from aoe.tuner.reuse.kinds import Reuse, ReuseKind
from aoe.tuner.task_scheduler import BudgetSlice, FinishedSlice, TaskContext, tune_tasks
from aoe.tuner.tune_context import TuneContext
from aoe.validation.model_validator import ValidationResult
from aoe.validation.rewrite_assembly import write_parts
from aoebank import (
    Bank,
    Event,
    Record,
    Report,
    Text,
    list_bank,
    make_unified_record,
    merge,
    show,
    validate,
)
from aoebank import workload_key as key_of

# ---- the file of the kind: an LRN is a ladder, and the rung of its size the fastest ----

LADDER = JobType("ladder", 9, "ladder")
_ENGINE = "ladders"


@dataclass(frozen=True)
class Ladder(LadderTask):
    """A task: the nodes of one size, and which rung is the fastest for them."""

    names: tuple[str, ...] = ()

    @property
    def workload(self) -> dict[str, Any]:
        return {"operations": ["Ladder"], "size": self.best}

    @property
    def key(self) -> str:
        return key_of(self.workload)


@dataclass(frozen=True, kw_only=True)
class TunedLadder(TunedTask):
    """What became of a ladder."""

    ladder: Ladder
    trials: int = 0
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderReport(ModelReport[TunedLadder]):
    """Contents of the result file."""


@dataclass(frozen=True, kw_only=True)
class StoredLadder(Stored):
    """What the bank knows of a ladder."""

    rung: int


class LadderBank(TaskBank[Ladder]):
    """The records of ladders, in files like those of operators."""

    def __init__(self, journal: BankJournal, core_num: int, base: Bank | None) -> None:
        super().__init__(journal, base=base, compared=())
        self._core_num = core_num

    def find(self, task: Ladder) -> StoredLadder | None:
        own = self._find_in(self._bank, task)
        if own is not None or self._base is None:
            return own
        found = self._find_in(self._base, task)
        return None if found is None else replace(found, is_base=True)

    def _find_in(self, bank: Bank, task: Ladder) -> StoredLadder | None:
        file, key = self._file_in(bank, task), self._key(task)
        record, last = self._record_at(file, key, bank), self._journal.last_figure(file, key)
        if record is None or last is None or last.speedup is None:
            return None
        return StoredLadder(rung=_rung_of(record), speedup=last.speedup)

    def save(self, task: Ladder, rung: int, measurement: Measurement) -> None:
        strategy = {"engine": _ENGINE, "rung": rung}
        record = _record_of(task, strategy, measurement.latency_us, self.soc_version)
        self._bank.put(self.file_of(task), [record])
        estimate, names = estimate_speedup(measurement), task.names
        added = BankNote(
            event=Event.ADD, op_names=names, estimate=estimate, measurement=measurement
        )
        self.note([(task, added)])

    def _key(self, task: Ladder) -> str:
        return task.key

    def _file_in(self, bank: Bank, task: Ladder) -> Path:
        return _file_in(bank, self.soc_version, self._core_num)


def _file_in(bank: Bank, soc_version: str, core_num: int) -> Path:
    return bank.unified_file(soc_version=soc_version, core_num=core_num, op_type="Ladder")


def _record_of(
    ladder: Ladder, strategy: Mapping[str, Any], cost_us: float | None, soc_version: str
) -> Record:
    record = make_unified_record(
        workload=ladder.workload,
        strategy=dict(strategy),
        cost_us=None if cost_us is None else round(cost_us, 3),
        origin="aoe",
    )
    return replace(record, soc_version=soc_version, op_type="Ladder")


@dataclass
class LadderTasks:
    """The ladders of a model; see `Tasks`."""

    left: list[Ladder]
    bank: LadderBank
    reuse: ReuseBook[Ladder, StoredLadder | None, LadderBank]
    on_event: Callable[[TunedLadder], None]
    lookup_only: bool = False

    def waiting(self) -> Sequence[Ladder]:
        return self.left

    def next_slice(self, tasks: Sequence[Ladder], trials_left: float) -> BudgetSlice[Ladder]:
        return BudgetSlice(task=tasks[0], trials=RUNGS)

    def begin(
        self, given: BudgetSlice[Ladder], trials_left: float
    ) -> Callable[[TaskRunner], Found] | None:
        self.left.remove(given.task)
        known = self.bank.find(given.task)
        self.reuse.add(self.bank, given.task, known)
        if known is not None or self.lookup_only:
            self.bank.adopt(given.task)
            self.on_event(
                TunedLadder(
                    ladder=given.task,
                    outcome=RepoOutcome.RESERVED if known else RepoOutcome.UNSATISFIED,
                    reason=f"rung {known.rung}" if known else "unknown",
                    speedup=known.speedup if known else 1.0,
                )
            )
            return None

        return lambda runner: given.task.searched(given.trials)

    def record(self, finished: FinishedSlice[Ladder, Found]) -> None:
        found, ladder = finished.result, finished.slice.task
        assert found.answer is not None and found.measurement is not None
        assert found.estimate is not None and accepts(found.estimate, 1.03)
        self.bank.save(ladder, found.answer, found.measurement)
        self.on_event(
            TunedLadder(
                ladder=ladder,
                outcome=RepoOutcome.ADD,
                reason=f"rung {found.answer}",
                speedup=found.estimate.median,
                trials=len(found.trials),
            )
        )

    def trials_left(self) -> float:
        return float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderResult(ModelTuning[Any]):
    """What a run gave; the model stays as it is."""

    job = LADDER

    ladders: tuple[TunedLadder, ...] = field(default=())

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "key": one.ladder.key,
                "op_name": one.ladder.names[0],
                **task_members(one, in_model=False),
            }
            for one in self.ladders
        ]


def check(context: ModeContext) -> None:
    check_search(context)


def run(context: ModeContext) -> LadderResult:
    return run_model(
        context,
        LADDER,
        report_type=LadderReport,
        to_json=lambda report: report.sections(LADDER, {}),
        tune=_tune,
    )


def _tune(tuning: TuneContext, report: LiveReport[LadderReport]) -> LadderResult:
    tuned: list[TunedLadder] = []
    tasks = LadderTasks(
        _ladders_of(tuning.subject.model.proto),
        _bank_of(tuning),
        ReuseBook(tuning.banks.base, LADDER, _reuse_of),
        tuned.append,
        tuning.settings.lookup_only,
    )
    context = TaskContext(**shared_context(tuning, tuning.time.stopwatch), bank=tasks.bank)
    tune_tasks(tasks, context, SerialExecutor())
    report.update(tasks=tuple(tuned), result=TuningResult.SUCCESSFUL)
    parts = tuning.scratch / "om"
    write_parts(parts, tuning.subject.model.proto, None)
    write_tuned_model(tuning, parts)
    measured = make_measurement(1.0)
    deviation = Deviation(max_abs_err=0.0, excess=0.0)
    validation: ValidationResult[Any] = ValidationResult(
        kept=(),
        drops={},
        comparison=ModelComparison(measurement=measured, deviation=deviation),
        estimate=estimate_speedup(measured),
    )
    result = LadderResult(
        **run_facts(tuning),
        reuse=tasks.reuse.summary(),
        validation=validation,
        ladders=tuple(tuned),
        remembered={one.ladder.key: tasks.bank.remembered(one.ladder) for one in tuned},
    )
    for one in tuned:
        members = {
            "op_names": one.ladder.names,
            "size": one.ladder.best,
            **remembered_to_json(result.remembered[one.ladder.key]),
        }
        write_json(result.places.results / DETAILS / f"{one.ladder.best}.json", members)
    return result


def _bank_of(tuning: TuneContext) -> LadderBank:
    base = tuning.banks.base.bank if tuning.banks.base is not None else None
    return LadderBank(tuning.banks.journal, tuning.machine.runner.target.core_num, base)


def _ladders_of(model: onnx.ModelProto) -> list[Ladder]:
    names: dict[int, list[str]] = {}
    for node in model.graph.node:
        size = next((one.i for one in node.attribute if one.name == "size"), None)
        if size is not None:
            names.setdefault(size, []).append(node.name)
    return [Ladder(size, tuple(equal)) for size, equal in names.items()]


def _size_of(record: Record) -> int:
    assert isinstance(record.workload, Mapping)
    return int(str(record.workload["size"]))


def _rung_of(record: Record) -> int:
    assert isinstance(record.strategy, Mapping)
    return int(record.strategy["rung"])


def _reuse_of(
    ladder: Ladder, known: StoredLadder | None, bank: LadderBank, base: EarlierResult
) -> Reuse:
    return Reuse(
        key=ladder.key,
        op_type="Ladder",
        op_names=ladder.names,
        kind=ReuseKind.REUSED if known else ReuseKind.NEW,
        reason="in the bank" if known else "not in the bank",
    )


def plan(tuning: TuneContext, before: Sequence[KindPlan]) -> KindPlan:
    bank, base = _bank_of(tuning), compared_with(tuning)
    ladders = _ladders_of(tuning.subject.model.proto)
    parts = [_reuse_of(one, bank.find(one), bank, base) for one in ladders]
    new = sum(part.kind is ReuseKind.NEW for part in parts)
    return KindPlan(reuse=reuse_summary(base, LADDER, parts), most_s=2.0 * new)


DETAILS = "ladder_tuning"


def has_records(bank: Bank, soc_version: str) -> bool:
    return any(file.stem.endswith("_Ladder") for file in bank.iter_files())


def task_of_details(members: Mapping[str, Any], target: EarlierTarget) -> EarlierTask:
    ladder = Ladder(members["size"], tuple(members["op_names"]))
    known = remembered_from_json(members)
    record = None
    if known.strategy is not None:
        record = _record_of(ladder, known.strategy, known.cost_us, target.soc_version)
    return EarlierTask(
        key=ladder.key,
        op_type="Ladder",
        op_names=ladder.names,
        subject=ladder,
        file_in=lambda bank: _file_in(bank, target.soc_version, target.core_num),
        record=record,
        lines=known.lines,
    )


def tasks_of_model(manifest: Manifest, target: EarlierTarget) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderTuningReport(Report):
    """What became of the ladders, in words of their own."""

    result: LadderResult
    schema: str = "toy.ladders/1"

    def document(self) -> Mapping[str, object]:
        return {"summary": self.result.summary()}

    def write(self, text: Text) -> None:
        rows = [(row["op_name"], row["reason"]) for row in self.result.rows()]
        text.table(("ladder", "rung"), rows, "nn")
        text.line("a ladder changes nothing")


@dataclass(frozen=True)
class LadderAnswer:
    """The rung in a record; see `MeasurableAnswer`."""

    ladder: Ladder
    rung: int
    op_type: str = "Ladder"
    source: str | None = None
    model: Path | None = None
    default: str = "the lowest rung"

    def measure(self, recorded: object, compilers: KernelCompilers) -> Measurement:
        return self.ladder.measure([self.rung], POLICY, None)[0]

    def timed(self, record: Record, latency_us: float) -> Record:
        return replace(record, cost_us=round(latency_us, 3))

    def facts(self, recorded: object) -> dict[str, Any]:
        return {}


class LadderReader:
    """Reads the records of ladders; see `RecordReader`."""

    def undecided(self) -> tuple[()]:
        return ()

    def read(self, file: Path, record: Record) -> LadderAnswer | None:
        strategy = record.strategy
        if not isinstance(strategy, Mapping) or strategy.get("engine") != _ENGINE:
            return None
        return LadderAnswer(Ladder(_size_of(record), ()), _rung_of(record))


def reader(context: object) -> LadderReader:
    return LadderReader()


# ---- its line ----


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = TaskKind(
        mode=__name__,
        planner=__name__,
        verifier=__name__,
        earlier=__name__,
        report=f"{__name__}.LadderTuningReport",
    )
    monkeypatch.setitem(KINDS, LADDER, kind)


# ---- and every command knows it ----


class World:
    """A model of three ladders, two of them equal, and a place for banks and results."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.capsys = place, capsys
        self.runs = ScriptedRuns()
        self.model = self.save([3, 5, 3])

    def save(self, sizes: Sequence[int]) -> Path:
        name = "_".join(map(str, sizes))
        return save_model(blocks_net(sizes), self.place / f"net_{name}.onnx")

    def aoe(self, *words: object) -> str:
        """Run a command of `aoe`; return what it has printed."""
        self.capsys.readouterr()
        assert aoe_exit_code(words, self.runs.engine) == 0
        return self.capsys.readouterr().out

    def tune(self, bank: str, model: Path | None = None, *more: str) -> str:
        """Tune the ladders of a model with a bank."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TUNE_BANK_PATH", str(self.bank(bank)))
            output = f"--output={self.place / 'out'}"
            return self.aoe(f"--model={model or self.model}", "-j", "ladder", output, *more)

    def bank(self, name: str) -> Path:
        folder = self.place / name
        folder.mkdir(exist_ok=True)
        return folder

    def records(self, name: str) -> dict[int, int]:
        """Return the rungs of a bank, by size."""
        bank = Bank(self.place / name)
        found = [record for file in bank.iter_files() for record in bank.iter_records(file)]
        return {_size_of(record): _rung_of(record) for record in found}


@pytest.fixture
def world(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> World:
    monkeypatch.setenv("HOME", str(tmp_path))
    return World(tmp_path, capsys)


def test_run_tunes_records_writes_a_model_and_reports(world: World) -> None:
    shown = world.tune("bank")
    assert world.records("bank") == {3: 3, 5: 5}
    assert "lrn0" in shown and "rung 3" in shown and "a ladder changes nothing" in shown
    assert read_manifest(next((world.place / "out").glob("*.om"))).kernels == ()
    summary = json.loads((world.place / "out" / "summary.json").read_text())
    assert [(row["op_name"], row["outcome"]) for row in summary["ladders"]] == [
        ("lrn0", "add"),
        ("lrn1", "add"),
    ]
    assert summary["repo"]["add"] == 2 and summary["modes"][0]["mode"] == "ladder"
    (file,) = world.place.rglob("aoe_result_ladder_*.json")
    basic, found = json.loads(file.read_text())
    assert found["LADDER"]["repo_summary"]["repo_add_num"] == 2
    assert basic["basic"]["tuning_name"] == summary["tuning_name"]


def test_later_run_reuses_what_it_knows_and_tunes_the_rest(world: World) -> None:
    world.tune("bank")
    before = {file: file.read_bytes() for file in (world.place / "bank").rglob("*.json")}
    document = json.loads(world.tune("bank", None, "--json"))
    assert document["schema"] == "toy.ladders/1"
    rows = document["summary"]["ladders"]
    assert {row["outcome"] for row in rows} == {"reserved"}
    assert [row["speedup"] for row in rows] == [2.0, 2.0]
    assert before == {file: file.read_bytes() for file in before}
    world.tune("bank", world.save([5, 7]))
    assert world.records("bank") == {3: 3, 5: 5, 7: 7}


def test_compile_looks_it_up_where_the_bank_has_it(world: World) -> None:
    world.tune("bank")
    words = ("compile", f"--model={world.save([5, 7])}", f"--op_bank_path={world.place / 'bank'}")
    shown = world.aoe(*words, f"--output={world.place / 'known.om'}", "--json")
    (ladders,) = [one for one in _modes(json.loads(shown)) if "ladders" in one["summary"]]
    rows = {
        row["op_name"]: (row["outcome"], row["reason"]) for row in ladders["summary"]["ladders"]
    }
    assert rows == {"lrn0": ("reserved", "rung 5"), "lrn1": ("unsatisfied", "unknown")}
    assert world.records("bank") == {3: 3, 5: 5}
    empty = f"--op_bank_path={world.bank('empty')}"
    shown = world.aoe(*words[:2], empty, f"--output={world.place / 'new.om'}", "--json")
    assert not [one for one in _modes(json.loads(shown)) if "ladders" in one["summary"]]


@pytest.mark.parametrize("left", ["details", "bank"])
def test_earlier_result_is_taken_over_and_what_left_the_model_is_told(
    world: World, left: str
) -> None:
    world.tune("then")
    earlier = world.place / ("out" if left == "details" else "then")
    shutil.copytree(earlier, world.place / "earlier")
    base = f"--base_result={world.place / 'earlier'}"
    document = json.loads(world.tune("now", world.save([5, 7]), base, "--json"))
    kinds = [part["kind"] for part in document["summary"]["reuse"]["parts"]]
    assert kinds == ["reused", "new", *(["dropped"] if left == "details" else [])]
    assert [row["outcome"] for row in document["summary"]["ladders"]] == ["reserved", "add"]
    assert world.records("now") == {5: 5, 7: 7}
    planned = json.loads(world.aoe("plan", world.model, "-j", "ladder", base, "--json"))
    assert planned["counts"]["reused"] == 2 and planned["counts"]["dropped"] == 0


def _modes(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the documents of all modes of a run."""
    return [document, *document.get("earlier", [])]


def test_plan_tells_what_is_reused_and_what_is_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tune("bank")
    monkeypatch.setenv("TUNE_BANK_PATH", str(world.bank("bank")))
    planned = json.loads(world.aoe("plan", world.save([5, 7]), "-j", "ladder", "--json"))
    assert find_faults(planned) == []
    kinds = {part["op_names"][0]: part["kind"] for part in planned["ladders"]}
    assert kinds == {"lrn0": "reused", "lrn1": "new"}
    assert planned["counts"]["new"] == 1 and planned["most_s"] == 2.0
    assert "lrn1" in world.aoe("plan", world.save([5, 7]), "--job_type=ladder")


def test_verify_measures_its_records_and_writes_them_back(world: World) -> None:
    world.tune("bank")
    found = json.loads(world.aoe("verify", world.bank("bank"), "--json"))
    assert find_faults(found) == [] and found["passed_over"] == []
    assert [(one["op_type"], one["verdict"]) for one in found["records"]] == [
        ("Ladder", "holds"),
        ("Ladder", "holds"),
    ]
    assert all(one["written"] and one["recorded_speedup"] == 2.0 for one in found["records"])
    assert "holds" in world.aoe("verify", world.bank("bank"), "--dry-run")


def test_run_of_several_kinds_keeps_each_to_its_records(world: World) -> None:
    shown = world.tune("bank", None, "--job_type=opat,ladder", "--trials=2")
    assert "operators, times for one place" in shown and "rung 5" in shown
    summary = json.loads((world.place / "out" / "summary.json").read_text())
    assert [row["mode"] for row in summary["modes"]] == ["opat", "ladder"]
    assert summary["total_ops"] == len(summary["operators"]) + len(summary["ladders"])
    found = json.loads(world.aoe("verify", world.bank("bank"), "--json"))
    families = [one["op_type"] for one in found["records"]]
    assert families.count("Ladder") == 2 < len(families) and found["passed_over"] == []


def test_bank_is_listed_shown_checked_and_merged(world: World) -> None:
    world.tune("ours")
    shutil.copytree(world.place / "ours", world.place / "base")
    world.tune("ours", world.save([6]))
    shutil.copytree(world.place / "base", world.place / "theirs")
    world.tune("theirs", world.save([7, 3]))
    ours, theirs, base, both = (world.place / one for one in ("ours", "theirs", "base", "both"))
    merged = merge(ours, theirs, base=base, output=both)
    assert not merged.conflicts and world.records("both") == {3: 3, 5: 5, 6: 6, 7: 7}
    assert list(validate(both).findings) == []
    (listed,) = list_bank(both).files
    assert listed.records == 4
    key = Ladder(7, ()).key
    assert [one.record.key for one in show(key, both).records] == [key]
