"""Kernels of the regions of a training graph: looked up or searched, linked, called by PyTorch."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.verdicts import BankNote
from aoe.device.compiler import KernelSource
from aoe.device.protocol import Device
from aoe.device.registry import resolve_target
from aoe.device.toolchain import Toolchain, find_toolchain
from aoe.errors import BuildError, RunError
from aoe.execute.compiling import KernelCompilers
from aoe.execute.runner import Runner
from aoe.folders.scratch import ScratchFolder
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import FAMILIES
from aoe.measurement import Outcome, accepts
from aoe.schedule import Configuration, Schedule
from aoe.target import Target
from aoe.tasks.operators.operator_task import OperatorTask
from aoe.torch.modules.training.programs import Program, workloads_of
from aoe.torch.modules.training.region_settings import RegionSettings, open_bank
from aoe.torch.modules.training.regions import Laid, RegionForm
from aoe.tuner.policies import screening_policy
from aoe.tuner.task_search import SearchResult, SearchSettings, TaskSearch
from aoe.tuner.tune_context import object_cache
from aoe.workload import Workload
from aoebank import Event

_THRESHOLD = 1.03
"""Speed-up over ONNX Runtime from which on a record is written, as for inference."""
_MOST_TRIALS = 3
"""Candidates of a workload: a training step waits for them. First guesses are the first."""
_MOST_INPUTS = 64  # AOE_MAX_ARGUMENTS of `kernels/glue/aoe_kernels.h`


class _Step(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_int32),
        ("result", ctypes.c_int32),
        ("inputs", ctypes.c_int32 * _MOST_INPUTS),
    ]


CompileKernels = Callable[[Sequence[KernelSource], Path], Mapping[str, str]]
Calls = dict[RegionForm, Callable[..., Sequence[torch.Tensor]]]


def tune_regions(programs: Mapping[RegionForm, Program], settings: RegionSettings) -> Calls:
    """Return what computes regions by kernels, as far as kernels were found for all of a region.

    Each kernel computes on the calling thread. Candidates are compiled, checked and timed in a
    process of their own; records are looked up first and written as those of inference are.

    Raises:
        AoeError: there is no compiler, or nothing can be measured.
        AoebankError: the bank cannot be used.
    """
    workloads = workloads_of(programs.values())
    if not workloads:
        return {}
    device, target = resolve_target(settings.tune.soc_version, 1)
    toolchain = find_toolchain(settings.env)
    with ExitStack() as stack:
        runner = stack.enter_context(Runner(device, target, toolchain))
        cache = object_cache(settings.tune, settings.env, Path.cwd(), target, lambda text: None)
        compilers = stack.enter_context(closing(KernelCompilers(runner, cache)))
        work = _Work(
            settings=settings,
            runner=runner,
            compilers=compilers,
            bank=open_bank(settings, target),
            target=target,
        )
        chosen = work.choose(workloads)
        return link_regions(
            programs, chosen, compilers.compile, device=device, target=target, toolchain=toolchain
        )


@dataclass(slots=True, kw_only=True)
class _Work:
    """Searches the kernels of some workloads."""

    settings: RegionSettings
    runner: Runner
    compilers: KernelCompilers
    bank: OperatorBank
    target: Target
    clock: Callable[[], float] = time.monotonic
    began_s: float = field(default_factory=time.monotonic)

    def left_s(self) -> float:
        """Return the seconds that are left."""
        return self.settings.limit_s - (self.clock() - self.began_s)

    def choose(self, workloads: Mapping[str, Workload]) -> dict[str, KernelSource]:
        """Return the kernels of workloads by their keys; those without are left out."""
        chosen = {}
        for number, (key, workload) in enumerate(workloads.items()):
            stored = self.bank.find(workload)
            if stored is not None and not self.settings.tune.repeat_tune:
                chosen[key] = KernelSource.of(workload, stored.schedule)
            elif not self.settings.tune.lookup_only and self.left_s() > 0:
                share_s = self.left_s() / (len(workloads) - number)
                found = self._search(workload, share_s)
                if found is not None:
                    chosen[key] = KernelSource.of(workload, found)
        return chosen

    def _search(self, workload: Workload, share_s: float) -> Schedule | None:
        """Return the best schedule of a few candidates, None if none computes the right result."""
        kernel_target = KernelTarget.of(self.target)
        end_s = self.clock() + share_s
        tune = self.settings.tune
        task = OperatorTask(
            runner=self.runner,
            family=FAMILIES[workload.op_type],
            workload=workload,
            kernel_target=kernel_target,
            settings=SearchSettings(
                method=tune.search,
                budget=min(_MOST_TRIALS, tune.trials),
                seed=tune.seed,
                screen=screening_policy(1, accept_busy=True),
                refusal=lambda schedule, configuration: self.bank.refusal(
                    workload, schedule, configuration
                ),
            ),
            compilers=self.compilers,
        )
        search = TaskSearch(task)
        search.go_on(
            _MOST_TRIALS, left_s=lambda: end_s - self.clock(), report=lambda count, best: None
        )
        good = [trial for trial in search.trials if trial.measurement.is_correct]
        if not good:
            return _least_wrong(task, search)
        best = task.chosen(good)
        schedule = task.answer(best.configuration)
        self._record(workload, schedule, best.configuration, search)
        return schedule

    def _record(
        self,
        workload: Workload,
        schedule: Schedule,
        configuration: Configuration,
        search: TaskSearch[Schedule],
    ) -> None:
        """Write a record, as a run for inference does: if the kernel beats ONNX Runtime."""
        policy = screening_policy(1, accept_busy=True)
        found: SearchResult[Schedule] = search.concluded(policy)
        if found.answer != schedule or found.estimate is None or found.measurement is None:
            return
        if not accepts(found.estimate, _THRESHOLD):
            return
        self.bank.save(
            workload,
            schedule,
            configuration,
            BankNote(
                event=Event.ADD,
                estimate=found.estimate,
                measurement=found.measurement,
                search={"method": self.settings.tune.search, "trials": len(found.trials)},
            ),
        )


def _least_wrong(task: OperatorTask, search: TaskSearch[Schedule]) -> Schedule | None:
    """Return a candidate that differs from ONNX Runtime, but did run; None if there is none.

    The region is compared with autograd in float64 all the same. The gradient of GELU differs for
    arguments whose exponential is denormal, times a huge gradient.
    """
    for trial in search.trials:
        if trial.measurement.outcome is Outcome.CORRECTNESS:
            return task.answer(trial.configuration)
    return None


def link_regions(
    programs: Mapping[RegionForm, Program],
    chosen: Mapping[str, KernelSource],
    compile_kernels: CompileKernels,
    *,
    device: Device,
    target: Target,
    toolchain: Toolchain,
) -> Calls:
    """Link the kernels of all regions into one library; return a call for each whole region.

    Args:
        programs: The regions.
        chosen: Kernels by the key of their workload.
        compile_kernels: Puts objects of kernels into a folder; returns by name what is wrong.
        device: Links the library.
        target: What the kernels are compiled for.
        toolchain: The C compiler.

    Raises:
        BuildError: the library cannot be linked or loaded.
    """
    with ScratchFolder("training") as folder:
        errors = compile_kernels(tuple(chosen.values()), folder)
        built = {key: s for key, s in chosen.items() if not errors[s.name] and not s.is_hosted}
        whole = {
            form: program
            for form, program in programs.items()
            if all(key_of(step.workload) in built for step in program.steps)
        }
        if not whole:
            return {}
        kernels = {source.name: source for source in built.values()}
        file = device.build_library(
            tuple(kernels.values()),
            [folder / f"{name}.o" for name in kernels],
            target=target,
            toolchain=toolchain,
            file=folder / "regions.so",
        )
        try:
            library = ctypes.CDLL(str(file))
        except OSError as error:
            raise BuildError("regions.so", f"cannot be loaded: {error}") from error
    numbers = {name: number for number, name in enumerate(kernels)}
    places = {key: numbers[source.name] for key, source in built.items()}
    return {form: RegionCall(library, form, program, places) for form, program in whole.items()}


class RegionCall:
    """Computes calls of one form on the memory of the tensors, without ONNX Runtime.

    Args:
        library: Holds the kernels.
        form: Of the calls.
        program: The kernels in order.
        places: Number in the library of what computes a workload, by its key.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        form: RegionForm,
        program: Program,
        places: Mapping[str, int],
    ) -> None:
        self._library = library  # its code is loaded as long as somebody holds it
        self._compute = library.aoe_compute
        self._steps = (_Step * len(program.steps))(
            *(_Step(places[key_of(s.workload)], s.result, s.inputs) for s in program.steps)
        )
        self._count = len(program.steps)
        self._tensors = ctypes.c_void_p * program.tensor_count
        self._constants = program.constants
        self._fixed = [0] * program.tensor_count
        for number, array in program.constants.items():
            self._fixed[number] = array.ctypes.data
        given = [(at, laid) for at, laid in enumerate(form.arguments) if isinstance(laid, Laid)]
        self._arguments = [(at, laid.is_dense) for at, laid in given]
        self._casts = [(at, getattr(torch, kind), to) for at, kind, to in program.casts]
        self._made = [
            (number, info.shape, getattr(torch, info.dtype))
            for number, info in program.made.items()
        ]
        self._results = list(zip(program.results, form.results, strict=True))

    def __call__(self, *arguments: Any) -> Sequence[torch.Tensor]:
        """Return the results, in new tensors.

        Raises:
            RunError: a kernel refuses, as for an index out of bounds.
        """
        places = self._fixed.copy()
        kept = []  # tensors stay alive until the kernels are done
        for number, (at, is_dense) in enumerate(self._arguments):
            tensor = arguments[at] if is_dense else arguments[at].contiguous()
            kept.append(tensor)
            places[number] = tensor.data_ptr()
        for number, dtype, to in self._casts:
            kept.append(tensor := kept[number].to(dtype))
            places[to] = tensor.data_ptr()
        for number, shape, dtype in self._made:
            kept.append(tensor := torch.empty(shape, dtype=dtype))
            places[number] = tensor.data_ptr()
        results = []
        for number, laid in self._results:
            results.append(tensor := laid.empty())
            places[number] = tensor.data_ptr()
        if self._compute(self._steps, self._count, self._tensors(*places)):
            raise RunError("region", "a kernel failed")
        return results
