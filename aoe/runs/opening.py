"""The start of a run: optimised graph, profile, bank, compilers, budget, measure pool, assembly.

Runs, plans and verifications of operators, subgraphs and ranges begin with the same parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

import onnx

from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import StoredAnswer
from aoe.bank.sources import kernel_source
from aoe.device.kept_objects import KeptObjects
from aoe.device.protocol import Device
from aoe.errors import RunError, TurnTimeoutError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.messages import TaskRunner
from aoe.execute.workers.measure_pool import MeasurePool, RemoteMeasurePool, SerialExecutor
from aoe.folders.scratch import ScratchFolder
from aoe.graph.model_graph import ModelGraph
from aoe.graph.reshapes import sink_reshapes
from aoe.graph.weights import WeightStore, has_many_weights, is_outside, laid_out
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FUSIBLE
from aoe.kernels.roofline import MachineRates
from aoe.om.file import MODEL, WEIGHTS
from aoe.ort.inputs import ModelInputs
from aoe.ort.offline_optimization import is_fully_optimized
from aoe.ort.optimizers import Optimizations, mark, marked
from aoe.ort.profile import LEAST_RUNS, RUNS, ModelProfile
from aoe.ort.static_shapes import infer_tensors
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operator import OperatorContext
from aoe.tasks.operators.operator_budget import OperatorBudget
from aoe.tasks.operators.operator_tasks import OperatorPool
from aoe.tasks.operators.operators import ChosenOperators, Operator
from aoe.tuner.live_report import Phase, Stopwatch
from aoe.tuner.operator_choice import OPTION
from aoe.tuner.precision.plan import PrecisionPlan
from aoe.tuner.reuse.covering_records import CoveringRecords, GuardedRecords
from aoe.tuner.reuse.earlier import EarlierResult
from aoe.tuner.tune_context import TuneContext
from aoe.validation.kernel_assembly import Assembly, LaidOutModel
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import ModelCosts, share_given
from aoe.workload import Workload

_RATES_TIMEOUT_S = 60.0


def open_bank(tuning: TuneContext, base: EarlierResult | None) -> OperatorBank:
    """Return the bank of a run, with the built-in bank and the earlier result behind it."""
    objects = tuning.machine.objects
    return OperatorBank(
        tuning.banks.journal,
        source_of=objects.kernel_source if objects is not None else kernel_source,
        core_num=tuning.machine.runner.target.core_num,
        built_in=tuning.banks.built_in,
        base=base.bank if base is not None else None,
    )


def precision_plan(tuning: TuneContext) -> PrecisionPlan:
    """Return in which precisions operators of a model are tuned."""
    return PrecisionPlan(
        settings=tuning.settings.precision,
        target=KernelTarget.of(tuning.machine.runner.target),
        imported=tuning.subject.start,
    )


def shared_context(tuning: TuneContext, searching: Stopwatch) -> dict[str, Any]:
    """Return the members of `TaskContext` that are the same for all kinds of tasks."""
    return {
        "settings": tuning.settings,
        "runner": tuning.machine.runner,
        "progress": tuning.progress,
        "log": tuning.log,
        "left_s": searching.left_s,
        "clock": tuning.time.stopwatch.clock,
        "count": tuning.trials,
    }


def operator_context(
    tuning: TuneContext,
    bank: OperatorBank,
    graph: ModelGraph,
    searching: Stopwatch,
    compilers: KernelCompilers,
) -> OperatorContext:
    """Return the context that tune the operators of a run."""
    return OperatorContext(
        **shared_context(tuning, searching),
        bank=bank,
        bytes_touched=graph.bytes_touched(),
        builder=compilers,
        builder_of=partial(open_compilers, tuning),
        is_chosen=_chosen(tuning, graph),
        covering=covering_of(tuning, bank),
    )


def covering_of(
    tuning: TuneContext, bank: OperatorBank
) -> Callable[[Workload], Iterable[StoredAnswer]]:
    """Return the look-up of ranges for fixed shapes; blocks of a range have none."""
    if tuning.settings.shape_range is not None:
        return lambda workload: ()
    found = CoveringRecords(bank, KernelTarget.of(tuning.machine.runner.target))
    return GuardedRecords(found, tuning.progress.warn)


def _chosen(tuning: TuneContext, graph: ModelGraph) -> Callable[[Operator], bool]:
    """Return the filter of operators to tune; unknown names are told."""
    choice = tuning.settings.tune_ops
    if choice is None:
        return lambda operator: True
    chosen = ChosenOperators(choice, graph, tuning.subject.start)
    for stranger in chosen.strangers():
        tuning.progress.warn(f"{OPTION}: no node of this model has this name or type: {stranger}")
    return chosen


def measure_rates(tuning: TuneContext) -> MachineRates | None:
    """Return the machine's rates, None where nothing is searched: no order depends on them.

    None too where it cannot be measured: operators are searched in a worse order then. For a model
    that was judged before, those will do that an earlier run has kept.
    """
    if tuning.settings.lookup_only:
        return None
    kept = tuning.machine.objects.kept if tuning.machine.objects is not None else None
    name = f"{_digest_of_machine(tuning)}.rates"
    if kept is not None and tuning.banks.journal.knows_model:
        with suppress(OSError, ValueError, TypeError):
            if (text := kept.text(name)) is not None:
                return MachineRates(**json.loads(text))
    try:
        found: MachineRates = tuning.machine.runner.call(
            "machine_rates", timeout_s=_RATES_TIMEOUT_S
        )
    except TurnTimeoutError:
        raise
    except RunError as error:
        tuning.progress.warn(f"what the machine can do is not known: {error}")
        return None
    if kept is not None:
        kept.put_text(name, json.dumps(asdict(found)))
    return found


def _digest_of_machine(tuning: TuneContext) -> str:
    """Return a digest of what decides the rates of a machine."""
    target = tuning.machine.runner.target
    facts = [target.soc_version, target.cpu_model, target.core_num, *target.features]
    return sha256(json.dumps([*facts, tuning.machine.versions["onnxruntime"]]).encode()).hexdigest()


def make_budget(
    tuning: TuneContext,
    profile: ModelProfile,
    searching: Stopwatch,
    measure_pool: OperatorPool,
    rates: MachineRates | None,
) -> OperatorBudget:
    """Return the budget of a run, shared among its operators; tuning begins with it."""
    tuning.time.phases.begin(Phase.SEARCH)
    return OperatorBudget(
        rates=rates or MachineRates(multiply_adds_per_us=1.0, bytes_per_us=1.0),
        target=KernelTarget.of(tuning.machine.runner.target),
        model_us=profile.nodes_us or 1.0,
        trials=tuning.settings.trials,
        left_s=lambda: searching.left_s() * measure_pool.slots(),
        slowness=1 / share_given(profile),
    )


def open_compilers(tuning: TuneContext, runner: TaskRunner | None = None) -> KernelCompilers:
    """Return the compilers of kernels that a runner measures; to be closed.

    Args:
        tuning: The run.
        runner: Of a worker on another machine, which compiles there; None for the run's own.
    """
    is_own = runner is None
    return KernelCompilers(
        runner or tuning.machine.runner,
        tuning.machine.objects,
        processes=tuning.settings.compile_processes,
        apart=tuning.machine.runner.apart() if is_own and tuning.subject.streams == 1 else None,
        clock=tuning.time.stopwatch.clock,
    )


def open_measure_pool(tuning: TuneContext) -> AbstractContextManager[MeasurePool[Any]]:
    """Return the measure pool: the workers there are, else this machine."""
    if tuning.machine.remote_pool is None:
        return nullcontext(SerialExecutor())
    return closing(RemoteMeasurePool(tuning.machine.remote_pool))


_PARTS = "parts"
"""Folder of the parts of the tuned model, in that of the run."""


def lay_out(tuning: TuneContext) -> LaidOutModel | None:
    """Return the models of a run with their weights in the folder of its parts; to be closed.

    None where weights are few, or lie in files of the user's: the assembly copies them then.
    """
    subject, clock = tuning.subject, tuning.time.stopwatch.clock
    imported = subject.model.proto
    if is_outside(imported) or not has_many_weights(imported):
        return None
    began_s = clock()
    folder = tuning.scratch / _PARTS
    folder.mkdir()
    store = WeightStore(folder / WEIGHTS)
    light = store.settled(imported)
    return LaidOutModel(
        store=store,
        imported=light,
        start=store.settled(subject.start) if subject.is_rewritten else light,
        write_s=clock() - began_s,
    )


def open_assembly(
    tuning: TuneContext,
    graph: ModelGraph,
    compilers: KernelCompilers,
    laid: LaidOutModel | None = None,
) -> Assembly:
    """Return the assembly of the tuned model, in the graph the run begins with; to be closed."""
    subject = tuning.subject
    return Assembly(
        tuning.scratch / _PARTS,
        tuning.subject.model.proto,
        graph,
        compilers,
        chosen=tuning.subject.start if tuning.subject.is_rewritten else None,
        precision=subject.precision,
        clock=tuning.time.stopwatch.clock,
        laid_out=laid,
    )


_PROFILING_SHARE = 0.02
"""Of the time limit, for the runs of the first profile."""


def profile_default(
    tuning: TuneContext, laid: LaidOutModel | None = None
) -> tuple[ModelGraph, ModelProfile]:
    """Return ONNX Runtime's own optimised graph, and where its time goes.

    Args:
        tuning: The run.
        laid: Its model, see `lay_out`; None where that was not asked for, or has no use.

    Raises:
        TurnTimeoutError: another run has measured until the time limit: nothing can be known.
    """
    device, threads = tuning.machine.runner.device, tuning.machine.runner.target.core_num
    tuning.time.phases.begin(Phase.PROFILE)
    tuning.progress.step("optimising the graph with ONNX Runtime")
    # on another core than what optimises
    tuning.machine.runner.start(is_apart=tuning.subject.streams == 1)
    folder = Path(mkdtemp(prefix="optimized_", dir=tuning.scratch))
    start = laid_out(tuning.subject.start, folder / WEIGHTS) if laid is None else laid.start
    as_images = not tuning.settings.precision.mode.quantises
    graph = optimized_graph(start, device, folder, threads=threads, tokens_as_images=as_images)
    _tell_left_out(tuning, marked(graph.proto))
    tuning.machine.runner.await_start()
    profiles = _KeptProfiles.of(tuning, graph)
    known = profiles.find()
    if known is not None:
        tuning.progress.step("the default node by node is known from an earlier run")
        return graph, known
    profile = profile_graph(tuning, graph.proto)
    profiles.keep(profile)
    return graph, profile


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptProfiles:
    """Profiles of a model in the cache of this machine: a run that finds all known takes none.

    They say which operators take the time, and how long nodes take in reports; what is proven is
    measured in each run. Under a time limit the time is shared out by what the machine does now.
    """

    kept: KeptObjects | None  # The cache, None where none is kept
    name: str  # Digest of the graph, and of what its times depend on
    may_recall: bool  # True where times of an earlier run will do

    @classmethod
    def of(cls, tuning: TuneContext, graph: ModelGraph) -> Self:
        """Return the profiles of a run's optimised graph."""
        objects, settings, subject = tuning.machine.objects, tuning.settings, tuning.subject
        nodes = [f"{node.name} {node.op_type}" for node in graph.nodes]
        facts = [subject.model.sha256, subject.inputs.digest(), _digest_of_machine(tuning), nodes]
        return cls(
            kept=objects.kept if objects is not None else None,
            name=sha256(json.dumps(facts).encode()).hexdigest(),
            may_recall=tuning.banks.journal.knows_model
            and not settings.repeat_tune
            and not settings.lookup_only
            and tuning.time.stopwatch.limit_s is None,
        )

    def with_kernels(self, kernels: Iterable[ChosenKernel]) -> Self:
        """Return those of the graph with kernels."""
        names = sorted(kernel.name for kernel in kernels)
        return replace(self, name=sha256(json.dumps([self.name, names]).encode()).hexdigest())

    def find(self) -> ModelProfile | None:
        """Return the profile of an earlier run, None where there is none or it is taken anew."""
        if self.kept is None or not self.may_recall:
            return None
        with suppress(OSError, ValueError, TypeError, AttributeError):
            if (text := self.kept.text(f"{self.name}.profile")) is not None:
                return replace(ModelProfile.from_json(json.loads(text)), is_recalled=True)
        return None

    def keep(self, profile: ModelProfile) -> None:
        """Keep a profile; one run says too little."""
        if self.kept is not None and profile.runs >= LEAST_RUNS:
            self.kept.put_text(f"{self.name}.profile", json.dumps(profile.to_json()))


def profile_graph(
    tuning: TuneContext, proto: onnx.ModelProto, points: Sequence[ModelInputs] = ()
) -> ModelProfile:
    """Return where the time of a run's optimised graph goes, in a small part of its time.

    Args:
        tuning: The run.
        proto: Its graph.
        points: Of a range, where the time of a whole run is wanted, too.

    Raises:
        TurnTimeoutError: another run has measured until the time limit: nothing can be known.
    """
    device, threads = tuning.machine.runner.device, tuning.machine.runner.target.core_num
    tuning.progress.step("measuring the default, node by node")
    with ScratchFolder("profile") as folder, tuning.machine.runner.turns.measuring():
        before = device.usage()
        profile = tuning.engine.profile_model(
            proto if is_outside(proto) else _beside_its_weights(proto, folder),
            tuning.scratch,
            device.open_session,
            threads=threads,
            runs=_profile_runs(tuning),
            most_s=_PROFILING_SHARE * tuning.time.stopwatch.left_s(),
            inputs=tuning.subject.inputs,
            points=points,
        )
        given_share = device.usage().since(before).given_share
    return replace(profile, given_share=given_share)


def _profile_runs(tuning: TuneContext) -> int:
    """Return the runs of a profile; a model that was judged before was profiled then."""
    if tuning.settings.lookup_only:
        return 1
    return LEAST_RUNS if tuning.banks.journal.knows_model else RUNS


def find_left_out(tuning: TuneContext) -> None:
    """Say what of ONNX Runtime breaks the model, where nobody wants its optimised graph."""
    device, proto = tuning.machine.runner.device, tuning.subject.model.proto
    if is_fully_optimized(proto, device.open_session):
        return
    with ScratchFolder("optimized") as folder:
        threads = tuning.machine.runner.target.core_num
        _tell_left_out(tuning, marked(device.optimize(proto, folder / MODEL, threads=threads)))


def _tell_left_out(tuning: TuneContext, found: Optimizations) -> None:
    """Say what of ONNX Runtime breaks the model; its sessions need not find that out again."""
    if found.are_all or marked(tuning.subject.model.proto) == found:
        return
    for proto in (tuning.subject.model.proto, tuning.subject.written, tuning.subject.start):
        mark(proto, found)
    tuning.progress.warn(found.warning())


def optimized_graph(
    proto: onnx.ModelProto,
    device: Device,
    scratch: Path,
    *,
    threads: int,
    tokens_as_images: bool = True,
) -> ModelGraph:
    """Return ONNX Runtime's own optimised graph of a model, in the form kernels are found in.

    Args:
        proto: The model.
        device: Optimises it.
        scratch: Directory for a file while that is done.
        threads: Of the session.
        tokens_as_images: False to leave matrix products of tokens what they are.
    """
    file = scratch / "optimized.onnx"
    found = device.optimize(proto, file, threads=threads, tokens_as_images=tokens_as_images)
    file.unlink(missing_ok=True)
    tensors = sink_reshapes(found, infer_tensors(found, device.open_session), fusible=FUSIBLE)
    return ModelGraph(found, tensors, block=device.channel_block())


def _beside_its_weights(proto: onnx.ModelProto, folder: Path) -> Path:
    """Return a file of a model as comparisons load them: its weights lie in another one.

    A session of the bytes of VGG-19 takes 2 to 3 s to load, of such a file 0.4 s.
    """
    file = folder / MODEL
    with WeightStore(folder / WEIGHTS) as store:
        file.write_bytes(store.externalize(proto).SerializeToString())
    return file


def profile_tuned(
    tuning: TuneContext,
    graph: ModelGraph,
    assembly: Assembly,
    validation: ValidationResult[ChosenKernel],
    untuned: ModelProfile,
    costs: ModelCosts,
) -> ModelProfile:
    """Return the profile of the tuned model; empty where no time is left for it."""
    if not validation.kept:
        return untuned
    if tuning.settings.lookup_only:
        return ModelProfile(node_us={}, model_us=untuned.model_us, runs=0)
    part = assembly.write_model(validation.kept)
    profiles = _KeptProfiles.of(tuning, graph).with_kernels(validation.kept)
    known = profiles.find()
    if known is not None:
        return known
    with suppress(TurnTimeoutError), tuning.machine.runner.turns.measuring():
        left_s = tuning.time.stopwatch.left_s() - costs.finishing_s
        if left_s >= costs.profiling_s(LEAST_RUNS):
            profile = tuning.engine.profile_model(
                part.model,
                tuning.scratch,
                tuning.machine.runner.device.open_session,
                threads=tuning.machine.runner.target.core_num,
                runs=_profile_runs(tuning),
                most_s=left_s - costs.profiling_s(LEAST_RUNS),
                inputs=tuning.subject.inputs,
                library=part.library,
            )
            profiles.keep(profile)
            return profile
    tuning.progress.step("the time limit leaves no time to profile the tuned model")
    return ModelProfile(
        node_us={},
        model_us=validation.comparison.measurement.latency_us * tuning.subject.streams,
        runs=0,
    )
