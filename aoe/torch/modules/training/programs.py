"""A region of a training graph as a list of kernels, by which tensors they read and write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from torch._decomp import get_decompositions

from aoe.bank.operators import key_of
from aoe.device.protocol import Device
from aoe.device.registry import default_device
from aoe.errors import AoeError
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Region, partition
from aoe.graph.weights import array_of
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.ort.static_shapes import infer_tensors
from aoe.torch.modules.export_errors import tracing_error, translation_error
from aoe.torch.modules.onnx_translation import quiet_exporter, translate
from aoe.torch.modules.training.regions import Laid, RegionForm, results_of
from aoe.workload import Workload

_OF_THE_EXPORT = (torch.onnx.OnnxExporterError, RuntimeError, TypeError, ValueError, AoeError)
"""What stands in the way of one region; the others are tuned all the same."""
_EXPANDED = get_decompositions(
    [
        *(torch.ops.aten.silu_backward, torch.ops.aten.mish_backward, torch.ops.aten.elu_backward),
        *(torch.ops.aten.hardswish_backward, torch.ops.aten.softplus_backward),
        *(torch.ops.aten.hardsigmoid_backward, torch.ops.aten.hardtanh_backward),
    ]
)
"""Operators the exporter has no counterpart of, by how they are expanded."""
_SAME_MEMORY = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"})
"""Operators whose result is their first input in another shape."""


class _InMemory(torch.nn.Module):  # type: ignore[misc]
    """A region whose tensors are given and returned in the order in which they lie."""

    def __init__(self, module: torch.fx.GraphModule, form: RegionForm) -> None:
        super().__init__()
        self.module = module
        self._form = form

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest = iter(values)
        arguments = [
            laid.from_memory(next(rest)) if isinstance(laid, Laid) else laid
            for laid in self._form.arguments
        ]
        results = results_of(self.module(*arguments))
        pairs = zip(self._form.results, results, strict=True)
        return tuple(laid.to_memory(result) for laid, result in pairs)


def export_region(module: torch.fx.GraphModule, form: RegionForm) -> onnx.ModelProto:
    """Return a region as ONNX.

    Raises:
        ModelImportError: it has an operator without counterpart.
    """
    examples = tuple(torch.empty(laid.read_shape, dtype=laid.dtype) for laid in form.tensors)
    names = [str(number) for number in range(len(examples))]
    whole = _InMemory(module, form)
    try:
        with torch.no_grad(), quiet_exporter():
            program = torch.export.export(whole, examples, strict=False)
            if set(_EXPANDED).intersection(node.target for node in module.graph.nodes):
                program = program.run_decompositions(_EXPANDED)
    except _OF_THE_EXPORT as error:
        raise tracing_error(error, whole) from error
    try:
        return translate(program, names, [laid.dtype for laid in form.results])
    except _OF_THE_EXPORT as error:
        raise translation_error(error, whole, program) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A kernel of a program."""

    workload: Workload  # What it computes
    inputs: tuple[int, ...]  # Numbers of the tensors it reads
    result: int  # Number of the one it makes


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The kernels of a region in order; tensors have numbers, those of the arguments come first."""

    casts: tuple[tuple[int, str, int], ...]  # Number of a tensor, element type, number of its cast
    constants: Mapping[int, np.ndarray[Any, Any]]
    made: Mapping[int, TensorInfo]  # What is made on the way
    results: tuple[int, ...]  # Of the region
    steps: tuple[Step, ...]

    @property
    def tensor_count(self) -> int:
        """How many tensors have a number."""
        numbers = [*self.made, *self.constants, *self.results, *(cast[2] for cast in self.casts)]
        read = [number for step in self.steps for number in step.inputs]
        return max((*numbers, *read), default=-1) + 1


def program_of(proto: onnx.ModelProto, device: Device) -> Program | str:
    """Return the kernels that compute a region, or why there are none for all of it.

    Raises:
        RunError: ONNX Runtime cannot load the region.
    """
    tensors = infer_tensors(proto, device.open_session)
    graph = ModelGraph(proto, tensors, block=0)
    found = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    if found.refusals:
        refusal = found.refusals[0]
        return f"{refusal.op_type}: {refusal.reason}"
    return _Numbering(graph, found.regions).program()


def export_program(module: torch.fx.GraphModule, form: RegionForm) -> Program | str:
    """Return the kernels that compute a region, or why there are none for all of it.

    Raises:
        AoeError: it cannot be exported or loaded.
    """
    return program_of(export_region(module, form), default_device())


class _Numbering:
    """Gives tensors of an exported region their numbers."""

    def __init__(self, graph: ModelGraph, regions: Sequence[Region]) -> None:
        self._graph = graph
        self._ends = {region.nodes[-1]: region for region in regions}
        self._inside = {index for region in regions for index in region.nodes}
        self._numbers = {value.name: at for at, value in enumerate(graph.proto.graph.input)}
        self._argument_count = len(self._numbers)
        self._casts: list[tuple[int, str, int]] = []
        self._constants: dict[int, np.ndarray[Any, Any]] = {}
        self._made: dict[int, TensorInfo] = {}

    def program(self) -> Program | str:
        """Return the program, or why there is none."""
        steps = []
        for index, node in enumerate(self._graph.nodes):
            region = self._ends.get(index)
            if region is not None:
                inputs = tuple(map(self._number, region.inputs))
                steps.append(
                    Step(workload=region.workload, inputs=inputs, result=self._new(region.output))
                )
            elif index not in self._inside and (reason := self._follow(node)):
                return reason
        results = [self._numbers[value.name] for value in self._graph.proto.graph.output]
        if len(set(results)) < len(results) or not set(results) <= set(self._made):
            return "a result is another tensor in another shape"
        return Program(
            casts=tuple(self._casts),
            constants=self._constants,
            made={at: info for at, info in self._made.items() if at not in results},
            results=tuple(results),
            steps=tuple(steps),
        )

    def _follow(self, node: onnx.NodeProto) -> str:
        """Number the result of a node that no kernel computes; return why it has none."""
        first = node.input[0] if node.input else ""
        if node.op_type in _SAME_MEMORY and not node.domain:
            self._numbers[node.output[0]] = self._number(first)
            return ""
        info = self._graph.find_info(node.output[0])
        if (
            node.op_type == "Cast"
            and info
            and self._numbers.get(first, 1 << 30) < self._argument_count
        ):
            number = self._next()
            self._casts.append((self._numbers[first], info.dtype, number))
            self._numbers[node.output[0]] = number
            return ""
        return f"{node.op_type}: no kernel"

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            array = np.ascontiguousarray(array_of(self._graph.initializers[name]))
            self._constants[number := self._next()] = array
            self._numbers[name] = number
        return self._numbers[name]

    def _new(self, name: str) -> int:
        info = self._graph.find_info(name)
        assert info is not None, "the shapes of a region are fixed"
        self._made[number := self._next()] = info
        self._numbers[name] = number
        return number

    def _next(self) -> int:
        known = (*self._numbers.values(), *self._constants, *self._made)
        return max((*known, *(cast[2] for cast in self._casts)), default=-1) + 1


def workloads_of(programs: Iterable[Program]) -> dict[str, Workload]:
    """Return what is to be computed by its key, the one with most elements first."""
    steps = (step for program in programs for step in program.steps)
    found = {key_of(step.workload): step.workload for step in steps}
    return dict(sorted(found.items(), key=lambda item: -item[1].output.size))
