"""A model tuned for several shapes: a run for each shape, and one tuned model of all results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aoe.entry.input_shapes import fix_input_shapes, parse_input_shape
from aoe.entry.protocol import ModelSource
from aoe.entry.registry import find_entry
from aoe.errors import OptionError
from aoe.graph.weights import without_initializers
from aoe.om.cases import OpenModel, Shapes
from aoe.results.files import timestamp_of
from aoe.tuner.mode import ModeContext, OneOfMany, limits_of_part
from aoe.tuner.tune_context import model_path
from aoebank import plural

if TYPE_CHECKING:
    import onnx

    from aoe.ort.inputs import InputSet
from pathlib import Path

from aoe.folders.scratch import ScratchFolder
from aoe.om.cases import join_cases
from aoe.runs.model_mode import ModelTuning
from aoe.tuner.mode import ModeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRun:
    """A run for several shapes, checked."""

    run: ModeContext  # What is asked for
    model: OpenModel  # The model with open shapes
    # Given sets for each shape; none where nothing was given.
    inputs: tuple[tuple[InputSet, ...], ...]
    calibration: tuple[tuple[InputSet, ...], ...]  # Sets accuracy is checked on, likewise

    def context(self, number: int, *, spent_s: float) -> ModeContext:
        """Return the run of one shape, which gets its part of the time that is left.

        Args:
            number: Of the shape, from 0.
            spent_s: Seconds the ones before took.
        """
        settings = self.run.settings
        limit_s, share = settings.tuning_time_limit_s, self._share(number)
        own = replace(
            limits_of_part(settings, spent_s=spent_s, number=number, parts=len(self.inputs)),
            input_shape=settings.shape_cases[number],
            shape_cases=(),
            inputs=self.inputs[number],
            precision=replace(settings.precision, calibration=self.calibration[number]),
            tuning_time_limit_s=None if limit_s is None else max(0.0, limit_s - spent_s) * share,
        )
        among = OneOfMany(
            report=f"report_{timestamp_of(self.run.now)}_{number + 1}",
            case=f"case_{number + 1}",
            is_last=number + 1 == len(self.inputs),
        )
        return replace(self.run, settings=own, one_of_many=among)

    def _share(self, number: int) -> float:
        """Return the part of the time left a shape gets: by its calls and their size, if known."""
        settings = self.run.settings
        if settings.shape_log is None:
            return 1 / (len(self.inputs) - number)
        weights = [settings.shape_log.weight_of(text) for text in settings.shape_cases[number:]]
        return weights[0] / sum(weights)


def split_cases(context: ModeContext) -> SplitRun:
    """Check a run for several shapes before the first shape begins.

    Raises:
        OptionError: the model is one of several, or of a kind that cannot be read with open
            shapes, or an input set fits none of the shapes.
        ModelImportError: the model cannot be read, or a shape does not fit it.
    """
    settings = context.settings
    if context.one_of_many is not None:
        raise OptionError(
            "--input_shape",
            "several shapes are for one model",
            got="a directory of models",
            hint="give the models one by one with --model; they share the bank",
        )
    model = _open_model(context)
    bare = without_initializers(model.proto)
    bare.graph.initializer.extend(_defaults(model.proto))
    shapes = [_shapes_in(bare, text) for text in settings.shape_cases]
    return SplitRun(
        run=context,
        model=model,
        inputs=_fitting(settings.inputs, shapes),
        calibration=_fitting(settings.precision.calibration, shapes),
    )


def _open_model(context: ModeContext) -> OpenModel:
    settings = context.settings
    source = ModelSource(
        path=model_path(context, settings.job_types[0]),
        weight=settings.weight,
        output_nodes=settings.out_nodes,
        env=context.env,
    )
    entry = find_entry(settings.framework, source)
    found = entry.load_with_open_extents(source, plural(len(settings.shape_cases), "shape"))
    return OpenModel(proto=found.proto, sha256=found.sha256, hold=found.hold)


def _defaults(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the initializers that are inputs too: their shape is that of the input."""
    names = {value.name for value in proto.graph.input}
    return [tensor for tensor in proto.graph.initializer if tensor.name in names]


def _shapes_in(proto: onnx.ModelProto, text: str) -> Shapes:
    """Return the shapes of all inputs in one case.

    Raises:
        ModelImportError: the case does not fit the model, or leaves an extent open.
    """
    fixed = type(proto)()
    fixed.CopyFrom(proto)
    fix_input_shapes(fixed, parse_input_shape(text))
    return {
        value.name: tuple(int(dim.dim_value) for dim in value.type.tensor_type.shape.dim)
        for value in fixed.graph.input
    }


def _fitting(sets: Sequence[InputSet], cases: Sequence[Shapes]) -> tuple[tuple[InputSet, ...], ...]:
    """Return the sets that have the shapes of each case.

    Raises:
        OptionError: a set fits none of them.
        RunError: a file cannot be read.
    """
    chosen: list[list[InputSet]] = [[] for _ in cases]
    for given in sets:
        files = given.files_of(list(cases[0]))
        shapes = {name: file.load().shape for name, file in files.items()}
        fits = [
            all(shapes[name] == case.get(name, shapes[name]) for name in shapes) for case in cases
        ]
        if not any(fits):
            raise OptionError(
                given.place,
                "the arrays have none of the shapes the model is tuned for",
                got="; ".join(f"{name} {shape}" for name, shape in shapes.items()),
            )
        for case, fit in zip(chosen, fits, strict=True):
            if fit:
                case.append(given)
    return tuple(map(tuple, chosen))


Modes = tuple[ModeResult, ...]


def join_results(cases: Sequence[Modes], model: OpenModel, file: Path | None = None) -> list[Modes]:
    """Put the tuned models of all shapes into one; they go then.

    Args:
        cases: What the modes gave for each shape.
        model: The model with open shapes.
        file: The one tuned model; None for one beside the folders of the shapes.

    Returns:
        The same, with the one tuned model in place of each.

    Raises:
        OutputError: it cannot be written.
    """
    files = [_last_file(modes) for modes in cases]
    joined = file or files[0].parent.parent / files[0].name
    with ScratchFolder("cases") as scratch:
        join_cases(joined, files, model, scratch)
    for file in files:
        file.unlink()
    return [tuple(_moved(mode, joined) for mode in modes) for modes in cases]


def _last_file(modes: Modes) -> Path:
    files = [mode.om_file for mode in modes if mode.om_file is not None]
    assert files, "modes on a model file write one"
    return files[-1]


def _moved(mode: ModeResult, file: Path) -> ModeResult:
    assert isinstance(mode, ModelTuning)
    return replace(mode, places=replace(mode.places, om_file=file))
