"""Operator tuning (OPAT), from a model file to a tuned model, a bank and reports.

import -> optimise offline -> profile -> cut into regions -> for each workload:
    look it up -> search -> settle -> bank     (closed loop, the bank is written each time)
-> compile what won -> judge the whole model -> write the model and the reports
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aoe.bank.operators import OperatorBank, OperatorVerdict
from aoe.device.compiler import KernelSource, kernel_name
from aoe.entry.imported_model import ImportedModel
from aoe.execute.runner import Runner
from aoe.graph.model_graph import ModelGraph
from aoe.om.file import KernelUse, Manifest, write_offline_model
from aoe.ort.profile import ModelProfile, profile_model
from aoe.results.files import TuningResult
from aoe.results.opat import OpatReport, OperatorResult
from aoe.settings import TuneSettings
from aoe.tuning.opat.assembly import Assembly, ChosenKernel
from aoe.tuning.opat.judge import Judge, Judgement
from aoe.tuning.opat.operator import OperatorTools, TunedOperator, tune_operator
from aoe.tuning.opat.operators import Operator, find_operators
from aoe.tuning.opat.result import OpatResult
from aoe.tuning.opat.writer import ResultWriter
from aoe.tuning.policies import final_policy, screen_policy
from aoe.tuning.progress import Progress
from aoebank import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class OpatPlaces:
    """Where a run works and leaves its results.

    Attributes:
        scratch: Empty directory, removed by the caller.
        om_file: The tuned model to write.
        results: Directory of the reports.
        tuning_name: Name of this run, `<model>_<timestamp>`.
    """

    scratch: Path
    om_file: Path
    results: Path
    tuning_name: str


class Opat:
    """One run of operator tuning.

    Args:
        model: The imported model.
        settings: Options of the run.
        runner: The measuring worker; its target is tuned for.
        bank: Custom operator bank of the target.
        places: Where to work and to write.
        progress: Is told what happens.
        versions: Of aoe, halide, onnxruntime, for the manifest.
        writer: Writes the reports.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        model: ImportedModel,
        settings: TuneSettings,
        *,
        runner: Runner,
        bank: OperatorBank,
        places: OpatPlaces,
        progress: Progress,
        versions: Mapping[str, str],
        writer: ResultWriter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._settings = settings
        self._runner = runner
        self._bank = bank
        self._places = places
        self._progress = progress
        self._versions = versions
        self._writer = writer
        self._clock = clock
        self._start = clock()
        self._report = OpatReport(tuning_name=places.tuning_name)
        self._tools = OperatorTools(
            settings=settings,
            runner=runner,
            bank=bank,
            progress=progress,
            out_of_time=self._out_of_time,
        )

    def run(self) -> OpatResult:
        """Tune the model.

        Raises:
            AoeError: the model cannot be run at all, or a result cannot be written. Records
                found before that are in the bank.
        """
        self._publish()
        try:
            return self._run()
        except Exception:
            self._publish(result=TuningResult.FAILED)
            raise

    def _run(self) -> OpatResult:
        graph, profile = self._prepare()
        found = find_operators(graph, profile)
        self._progress.plan(len(found.operators))
        self._publish(baseline_ms=profile.model_us / 1e3)
        tuned = [self._tune(operator) for operator in found.operators]
        parts = self._places.scratch / "parts"
        with closing(Assembly(parts, self._model.proto, graph, self._runner)) as assembly:
            judgement = self._judge(assembly, tuned)
            tuned_profile = self._profile_tuned(assembly, judgement, profile)
        self._write_model(assembly, judgement)
        median_us = judgement.comparison.measurement.baseline_latency_us
        self._publish(
            baseline_ms=median_us / 1e3,
            speedup=judgement.estimate.median if judgement.kept else 1.0,
            result=TuningResult.SUCCESSFUL,
        )
        result = OpatResult(
            om_file=self._places.om_file,
            operators=tuple(tuned),
            refusals=found.refusals,
            judgement=judgement,
            profile=profile,
            tuned_profile=tuned_profile,
            report=self._report,
            seconds=self._clock() - self._start,
        )
        self._writer.finish(result)
        return result

    # ---- before tuning ----

    def _prepare(self) -> tuple[ModelGraph, ModelProfile]:
        device, threads = self._runner.device, self._runner.target.core_num
        self._progress.step("optimising the graph with ONNX Runtime")
        file = self._places.scratch / "optimized.onnx"
        proto = device.optimize(self._model.proto, file, threads=threads)
        file.unlink(missing_ok=True)
        self._progress.step("measuring the default, node by node")
        profile = profile_model(
            proto,
            self._places.scratch,
            device.open_session,
            threads=threads,
            seed=self._settings.seed,
        )
        return ModelGraph(proto, profile.tensors, block=device.channel_block()), profile

    # ---- one operator ----

    def _tune(self, operator: Operator) -> TunedOperator:
        tuned = tune_operator(operator, self._tools)
        self._report = self._report.with_operator(_reported(tuned))
        self._publish()
        self._progress.operator(operator.op_name, _describe(tuned))
        return tuned

    # ---- the whole model ----

    def _judge(self, assembly: Assembly, tuned: list[TunedOperator]) -> Judgement:
        verdicts = {t.operator.key: self._bank.model_verdict(t.operator.workload) for t in tuned}
        candidates = [_chosen(item) for item in tuned if item.schedule is not None]
        candidates.sort(key=lambda kernel: kernel.source.name)  # shares are noisy, names are not
        kernels = [k for k in candidates if verdicts[k.key] is not Event.DROPPED]
        known = all(verdicts[kernel.key] is Event.KEPT for kernel in kernels)
        self._progress.step(f"compiling {len(kernels)} kernels for the model")
        errors = assembly.build(kernels)
        for name, error in errors.items():
            self._progress.warn(f"kernel {name} left out: {error}")
        kernels = [kernel for kernel in kernels if kernel.source.name not in errors]
        self._progress.step("judging the whole model")
        judge = Judge(
            assembly,
            self._runner,
            screen=screen_policy(self._runner.target.core_num),
            final=final_policy(self._runner.target.core_num),
            seed=self._settings.seed,
        )
        step = self._progress.step
        judgement = judge.confirm(kernels, step) if known else judge.judge(kernels, step)
        if not known or judgement.dropped:
            self._note_verdicts(kernels, judgement)
        if len(judgement.kept) < len(kernels):
            assembly.build(judgement.kept)  # the library a second run will build
        return judgement

    def _note_verdicts(self, kernels: list[ChosenKernel], judgement: Judgement) -> None:
        """Remember what this model kept; a second run then makes the same choice."""
        self._bank.note(
            [
                (
                    kernel.source.workload,
                    OperatorVerdict(
                        event=Event.KEPT if kernel in judgement.kept else Event.DROPPED,
                        op_names=kernel.op_names,
                    ),
                )
                for kernel in kernels
            ]
        )

    def _write_model(self, assembly: Assembly, judgement: Judgement) -> None:
        target = self._runner.target
        manifest = Manifest(
            name=self._model.name,
            model_sha256=self._model.sha256,
            soc_version=target.soc_version,
            core_num=target.core_num,
            cpu_features=target.cpu_features,
            nchwc_block=self._runner.device.channel_block(),
            versions=dict(self._versions),
            kernels=tuple(self._use(kernel) for kernel in judgement.kept),
            parts={},
        )
        self._progress.step(f"writing {self._places.om_file}")
        write_offline_model(self._places.om_file, assembly.directory, manifest)

    def _use(self, kernel: ChosenKernel) -> KernelUse:
        workload = kernel.source.workload
        return KernelUse(
            name=kernel.source.name,
            op_type=workload.op_type,
            key=kernel.key,
            bank_file=self._bank.file_of(workload).name,
            op_names=kernel.op_names,
        )

    def _profile_tuned(
        self, assembly: Assembly, judgement: Judgement, untuned: ModelProfile
    ) -> ModelProfile:
        if not judgement.kept:
            return untuned
        part = assembly.write_model(judgement.kept)
        return profile_model(
            part.model,
            self._places.scratch,
            self._runner.device.open_session,
            threads=self._runner.target.core_num,
            seed=self._settings.seed,
            library=part.library,
        )

    # ---- bookkeeping ----

    def _out_of_time(self) -> bool:
        limit = self._settings.tuning_time_limit_s
        return limit is not None and self._clock() - self._start > limit

    def _publish(self, **changes: Any) -> None:
        self._report = replace(self._report, tuning_time_s=self._clock() - self._start, **changes)
        self._writer.publish(self._report)


def _chosen(tuned: TunedOperator) -> ChosenKernel:
    assert tuned.schedule is not None
    workload = tuned.operator.workload
    saved = (tuned.before_us or 0.0) - (tuned.after_us or 0.0)
    return ChosenKernel(
        source=KernelSource(
            name=kernel_name(workload, tuned.schedule), workload=workload, schedule=tuned.schedule
        ),
        key=tuned.operator.key,
        regions=tuned.operator.regions,
        op_names=tuned.operator.op_names,
        gain_us=saved * len(tuned.operator.regions),
    )


def _reported(tuned: TunedOperator) -> OperatorResult:
    return OperatorResult(
        op_name=tuned.operator.op_name,
        op_type=tuned.operator.workload.op_type,
        outcome=tuned.outcome,
        before_us=tuned.before_us,
        after_us=tuned.after_us,
    )


def _describe(tuned: TunedOperator) -> str:
    speedup = f"{tuned.speedup:.2f}x, " if tuned.speedup else ""
    return f"{speedup}{tuned.outcome.value}: {tuned.reason}"
