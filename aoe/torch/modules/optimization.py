"""`aoe.torch.optimize`: export a module, tune it, and put it back where it was."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import onnx
import torch
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from torch.utils import _pytree as pytree

from aoe.errors import AccuracyError, ModelImportError, OptionError, OutputError, called
from aoe.execute.accuracy import compare_model_results
from aoe.folders.scratch import ScratchFolder
from aoe.ort.inputs import save_input_sets
from aoe.settings import environment, with_bank
from aoe.torch.modules.calls import CallConvention, FlatCall, TensorForm
from aoe.torch.modules.compiled import OptimizedModule
from aoe.torch.modules.export import (
    ExportedModule,
    evaluating,
    export_module,
    unwrapped,
)
from aoe.torch.modules.export_errors import module_place
from aoe.torch.modules.open_shapes import OpenDims
from aoe.torch.modules.served import ServedModel
from aoe.torch.modules.turns import its_turn
from aoe.torch.options import KNOWN, OptimizeOptions, engine_settings, make_options
from aoe.tuner.mode import TuneSettings
from aoe.tuner.precision.settings import PrecisionSettings
from aoe.tuner.progress import Progress, SilentProgress
from aoe.workload import shapes_text

_LOADS_OF_A_SAVE = 3.0
"""How much longer than writing the model it takes to unpack, check, load and try the tuned one."""


class Engine(Protocol):
    """Tunes an ONNX file and returns the `.om` file it wrote."""

    def __call__(self, settings: TuneSettings, env: Mapping[str, str], progress: Progress) -> Path:
        """Tune as `settings` say."""


def run_engine(settings: TuneSettings, env: Mapping[str, str], progress: Progress) -> Path:
    """Tune with the flow the command line uses.

    Raises:
        AoeError: see `aoe.tune`.
    """
    from aoe.runs.run import tune_with

    result = tune_with(settings, env=env, cwd=Path.cwd(), progress=progress, now=datetime.now(UTC))
    assert result.om_file is not None
    return result.om_file


def optimize(
    module: torch.nn.Module,
    example_inputs: Any,
    job_type: int | str = 2,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> OptimizedModule:
    """Tune the inference form of a module for inputs like these; return a drop-in module.

    The module itself is left as it is.

    Args:
        module: Any module that `torch.export` takes; its tensors are on the CPU.
        example_inputs: Positional arguments of a call as a tuple or list, or the only one.
        job_type: AOE's number or name, as the command line takes it.
        example_kwargs: Keyword arguments of the call.
        progress: Is told what happens; default is silence.
        engine: What tunes the exported model, by default `run_engine`.
        **options: As for `aoe.tune`: bank, output, tuning_time_limit, trials, search, seed,
            core_num, precision_mode, modify_mixlist, accuracy, calibration, strict_fp32,
            lookup_only, cache_mode, cache_dir; and those of `OptimizeOptions`: frozen,
            dynamic_shapes, dynamic_max. What is not given is as `set_option` says.

    Raises:
        ModelImportError: the module cannot be exported; names the inner module and the operator.
        AccuracyError: the exported model computes something else than the module.
        OptionError: an unknown option or value.
        AoeError: the engine cannot tune here; see the subclasses.
    """
    if not isinstance(module, torch.nn.Module):
        raise OptionError("optimize", "not a module", got=type(module).__name__)
    for name in options:
        if name not in KNOWN and _is_argument(module, name):
            raise OptionError(
                "optimize",
                "an argument of the module is given as an option",
                got=name,
                hint=f"optimize(module, inputs, example_kwargs={{{name!r}: ...}})",
            )
    args = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    settings = make_options({**options, "job_type": job_type})
    return optimize_call(
        unwrapped(module),
        args,
        example_kwargs or {},
        settings,
        progress=progress or SilentProgress(),
        engine=engine,
    )


def _is_argument(module: torch.nn.Module, name: str) -> bool:
    try:
        return name in inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return False


def optimize_call(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: OptimizeOptions,
    *,
    progress: Progress,
    engine: Engine | None = None,
    open_dims: Sequence[OpenDims] = (),
    clock: Callable[[], float] = time.monotonic,
) -> OptimizedModule:
    """Tune a module for one call with `engine`, by default `run_engine`; see `optimize`.

    `open_dims` has those of each tensor of the call, where the options do not name them. The time
    limit is counted by `clock`, in seconds, from the moment it is this thread's turn.
    """
    with its_turn(progress):
        run = _Run(options, progress, engine or run_engine, clock)
        return _optimized(module, args, kwargs, run, open_dims)


class _Run:
    """What one call of `optimize` works with, and its deadline."""

    def __init__(
        self,
        options: OptimizeOptions,
        progress: Progress,
        engine: Engine,
        clock: Callable[[], float],
    ) -> None:
        self.options = options
        self.progress = progress
        self.engine = engine
        self.env = environment()
        bank = options.tune.get("bank")
        if bank is not None:
            writes = not options.tune.get("lookup_only")
            self.env = with_bank(self.env, Path(bank), writes=writes)
        self._clock = clock
        self._start = clock()

    def left_s(self) -> float | None:
        """Return the seconds that are left, None without a limit."""
        limit = self.options.tune.get("tuning_time_limit")
        return None if limit is None else max(0.0, limit - self.spent_s())

    def spent_s(self) -> float:
        """Return the seconds since the run began."""
        return self._clock() - self._start


def _optimized(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    run: _Run,
    open_dims: Sequence[OpenDims],
) -> OptimizedModule:
    where = module_place(module, "")
    try:
        convention = CallConvention(module.forward)
        call = convention.flatten(args, kwargs)
    except TypeError as error:
        raise ModelImportError(
            where, f"cannot be called with the example inputs: {error}"
        ) from error
    run.progress.step(f"exporting {where}")
    options = run.options
    if options.dynamic_shapes is not None:
        open_dims = convention.open_dims(options.dynamic_shapes, call, options.dynamic_max)
    exported = export_module(module, call, open_dims)
    served = _tune(module, exported, call, run)
    _check(module, served, call, where)
    return OptimizedModule(module, served)


def _tune(
    module: torch.nn.Module, exported: ExportedModule, call: FlatCall, run: _Run
) -> ServedModel:
    options = run.options
    with ExitStack() as undo, ScratchFolder("torch") as scratch:
        owned, output = None, options.tune.get("output")
        if output is None:
            owned = ScratchFolder("torch")
            undo.callback(owned.remove)
            output = owned.path
        name = re.sub(r"\W+", "_", type(module).__name__).lower()
        file = scratch / f"{name}.onnx"
        began_s = run.spent_s()
        _save(exported.proto, file, module_place(module, ""))
        loading_s = _LOADS_OF_A_SAVE * (run.spent_s() - began_s)
        precision = _calibrated(options.precision, exported, call, scratch)
        settings = replace(
            _settings(run, file, Path(output), loading_s),
            precision=precision,
            shape_range=_range_text(exported),
        )
        with called(module_place(module, ""), f"--model={file}"):
            om_file = run.engine(settings, run.env, run.progress)
        served = ServedModel(
            om_file,
            exported.interface,
            exported.state,
            threads=options.tune.get("aicore_num"),
            frozen=options.frozen,
            owned=owned,
        )
        undo.pop_all()
    return served


def _settings(run: _Run, file: Path, output: Path, loading_s: float) -> TuneSettings:
    """Return the engine's settings; `loading_s` are kept for the time after the run."""
    left_s = run.left_s()
    limit_s = None if left_s is None else max(0.0, left_s - loading_s)
    given = {**run.options.tune, "output": output, "tuning_time_limit": limit_s}
    return engine_settings(file, given, run.env)


def _range_text(exported: ExportedModule) -> str | None:
    """Return the range an exported model is tuned for, as `--input_shape` has it."""
    form = exported.interface.form
    if not form.is_open:
        return None
    tensors = (leaf for leaf in form.leaves if isinstance(leaf, TensorForm))
    read = {value.name for value in exported.proto.graph.input}
    shapes = {}
    for name, tensor in zip(exported.interface.inputs, tensors, strict=True):
        ranges = {dim.axis: str(dim.tuned_range) for dim in tensor.open_dims}
        if name in read:
            shapes[name] = [ranges.get(at, extent) for at, extent in enumerate(tensor.shape)]
    return shapes_text(shapes)


def _calibrated(
    precision: PrecisionSettings, exported: ExportedModule, call: FlatCall, scratch: Path
) -> PrecisionSettings:
    """Return the settings with the example inputs to check accuracy on, if there are no others."""
    read = {value.name for value in exported.proto.graph.input}
    named = zip(exported.interface.inputs, call.tensors, strict=True)
    arrays = {name: tensor.detach().numpy() for name, tensor in named if name in read}
    if precision.constraint is None or precision.calibration or not arrays:
        return precision
    return replace(precision, calibration=save_input_sets(arrays, scratch))


def _save(proto: onnx.ModelProto, file: Path, where: str) -> None:
    try:
        onnx.save(proto, str(file))
    except (ValueError, EncodeError) as error:  # protobuf's limit of 2 GiB for one message
        raise ModelImportError(where, f"is too large for one ONNX file: {error}") from error
    except OSError as error:
        raise OutputError(str(file), f"cannot be written: {error.strerror or error}") from error


def _check(module: torch.nn.Module, served: ServedModel, call: FlatCall, where: str) -> None:
    """Compare the tuned model with the module itself on the example inputs."""
    with torch.no_grad(), evaluating(module):
        args, kwargs = call.rebuild(call.tensors)
        returned = module(*args, **kwargs)
        served.learn(call, returned)
        expected, found = _tensors(returned), _tensors(served.compute(call))
    forms = [
        [(tensor.dtype, tuple(tensor.shape), tensor.stride()) for tensor in tensors]
        for tensors in (expected, found)
    ]
    if forms[0] != forms[1]:
        raise AccuracyError(
            where,
            "the exported model returns tensors of other types, shapes or strides",
            got=forms[1],
            expected=str(forms[0]),
            hint="this is a fault of the export: please report the module",
        )
    deviation = compare_model_results(
        [tensor.numpy() for tensor in expected],
        [tensor.numpy() for tensor in found],
        served.model.manifest.precision,
    )
    if not deviation.acceptable:
        raise AccuracyError(
            where,
            f"the exported model computes something else: {deviation.detail}",
            hint=_nested_tensor_hint(module)
            or "this is a fault of the export: please report the module",
        )


def _nested_tensor_hint(module: torch.nn.Module) -> str | None:
    """Return a hint where PyTorch leaves padding out of its computation, which a graph cannot."""
    for encoder in module.modules():
        if isinstance(encoder, torch.nn.TransformerEncoder) and encoder.enable_nested_tensor:
            return "make nn.TransformerEncoder with enable_nested_tensor=False"
    return None


def _tensors(returned: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(returned)
    return [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
