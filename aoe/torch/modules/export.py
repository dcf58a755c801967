"""A PyTorch module, called in one way, as an ONNX model with static shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree

from aoe.errors import AoeError, ModelImportError
from aoe.torch.modules.calls import (
    EXCHANGED,
    CallConvention,
    CallForm,
    Constant,
    FlatCall,
    form_of,
    is_plain,
)
from aoe.torch.modules.export_errors import (
    module_place,
    node_scope,
    tracing_error,
    translation_error,
)
from aoe.torch.modules.onnx_translation import quiet_exporter, translate
from aoe.torch.modules.open_shapes import OpenDim, OpenDims
from aoe.torch.modules.state import ModuleState, tensors_of
from aoe.torch.modules.turns import one_at_a_time

_CHANGES = {
    OutputKind.BUFFER_MUTATION: "writes to its buffer",
    OutputKind.USER_INPUT_MUTATION: "writes to its argument",
}

_WRAPPED = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",  # torch.compile's, and ours
}
"""Classes that hold the module they wrap under a name."""

_TRAINING = ("train", "training")
_PROBABILITIES = ("p", "dropout", "dropout_p")
"""Arguments of dropout, of recurrent layers and of attention. Source: native_functions.yaml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """One place in what a module returns: result `index` of the model, or its argument back."""

    index: int
    argument: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedExtent:
    """The same for an open extent: that of dimension `axis` of argument `index`."""

    index: int
    axis: int


Leaf = Returned | ReturnedExtent | Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputForm:
    """Nesting of the results of the exported model in the value the module returns."""

    spec: Any
    leaves: tuple[Leaf, ...]

    def rebuild(self, results: Sequence[Any], call: FlatCall) -> Any:
        """Return the result in the structure of the module's own."""
        return pytree.tree_unflatten([_leaf(f, results, call) for f in self.leaves], self.spec)

    def results_of(self, returned: Any) -> list[torch.Tensor]:
        """Return the tensors in what the module returned that the model's results stand for."""
        found = zip(self.leaves, pytree.tree_leaves(returned), strict=True)
        results = {
            form.index: leaf
            for form, leaf in found
            if isinstance(form, Returned) and not form.argument
        }
        return [results[index] for index in sorted(results)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """Calls that an exported model computes, with its inputs and outputs."""

    form: CallForm  # The calls
    inputs: tuple[str, ...]  # Input of the model for each tensor of a call
    outputs: OutputForm  # What the module returns, in terms of the model's results


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModule:
    """A module as an ONNX model, and the module's state it was made of."""

    proto: onnx.ModelProto
    interface: Interface
    state: ModuleState


def export_module(
    module: torch.nn.Module, call: FlatCall, open_dims: Sequence[OpenDims] = ()
) -> ExportedModule:
    """Export the inference form of a module for calls like `call`.

    Args:
        module: The module.
        call: An example.
        open_dims: Open dimensions of each of its tensors; nothing where all are fixed.

    The module is left as it was, whatever happens. Threads wait for each other.

    Raises:
        ModelImportError: it cannot be exported, or a call would do more than compute results;
            names the inner module and the operator.
    """
    where = module_place(module, "")
    if not call.tensors:
        raise ModelImportError(where, "is called without any tensor, so there is nothing to tune")
    form = form_of(call, where, open_dims)
    _check_module(module)
    with (
        one_at_a_time,
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
        torch.random.fork_rng(devices=[]),
        evaluating(module),
        _restored(module),
    ):
        state = ModuleState(module)
        flattened = _Flattened(module, call, state)
        program = _trace(flattened, call, open_dims)
        names = CallConvention(module.forward).names(call)
        try:
            _refuse_side_effects(module, program, flattened.results.change or state.change())
            proto = translate(program, names, flattened.results.dtypes)
        except AoeError:
            raise
        except (torch.onnx.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
            raise translation_error(error, module, program) from error
    inputs = tuple(value.name for value in proto.graph.input)
    interface = Interface(form=form, inputs=inputs, outputs=flattened.results.form)
    return ExportedModule(proto=proto, interface=interface, state=state)


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Put a module that is training into evaluation mode for a while.

    A module in evaluation mode stays as it is, with children that train, if there are any.
    """
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    try:
        if module.training:
            module.eval()
        yield
    finally:
        for submodule, training in modes:
            submodule.training = training


class _Results:
    """Holds the form of the results; PyTorch would undo a change of a module's attribute."""

    form: OutputForm
    dtypes: tuple[torch.dtype, ...] = ()
    change = ""


class _Flattened(torch.nn.Module):  # type: ignore[misc]
    """Takes tensors and returns tensors; notes how what the module returns is nested."""

    def __init__(self, module: torch.nn.Module, call: FlatCall, state: ModuleState) -> None:
        super().__init__()
        self.module = module
        self._call = call
        self._state = state
        self.results = _Results()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self._call.rebuild(tensors)
        leaves, spec = pytree.tree_flatten(self.module(*args, **kwargs))
        self.results.change = self._state.value_change()  # PyTorch will undo it
        results: list[torch.Tensor] = []
        forms = tuple(_returned(leaf, tensors, results) for leaf in leaves)
        self.results.form = OutputForm(spec=spec, leaves=forms)
        self.results.dtypes = tuple(result.dtype for result in results)
        return tuple(results)


def _returned(leaf: Any, tensors: Sequence[torch.Tensor], results: list[torch.Tensor]) -> Leaf:
    """Return the source of a returned leaf; a new tensor is added to `results`."""
    if isinstance(leaf, torch.Tensor):
        if leaf.dtype not in EXCHANGED:
            raise TypeError(f"returns {leaf.dtype}, which NumPy does not have")
        for known, argument in ((tensors, True), (results, False)):
            for index, tensor in enumerate(known):
                if tensor is leaf:
                    return Returned(index=index, argument=argument)
        results.append(leaf)
        return Returned(index=len(results) - 1)
    if isinstance(leaf, torch.SymInt):
        for index, tensor in enumerate(tensors):
            for axis, extent in enumerate(tensor.shape):
                if isinstance(extent, torch.SymInt) and extent.node.expr == leaf.node.expr:
                    return ReturnedExtent(index=index, axis=axis)
    if not is_plain(leaf):
        raise TypeError(
            f"returns a {type(leaf).__name__}, which is neither a tensor nor a plain value"
        )
    return Constant(value=leaf)


def _leaf(form: Leaf, results: Sequence[Any], call: FlatCall) -> Any:
    if isinstance(form, Constant):
        return form.value
    if isinstance(form, ReturnedExtent):
        return call.tensors[form.index].shape[form.axis]
    return call.tensors[form.index] if form.argument else results[form.index]


def _trace(
    flattened: _Flattened, call: FlatCall, open_dims: Sequence[OpenDims]
) -> torch.export.ExportedProgram:
    try:
        with quiet_exporter():
            program = torch.export.export(
                flattened,
                _distinct(call.tensors),
                dynamic_shapes=_dynamic_shapes(open_dims),
                strict=False,
            )
    except Exception as error:  # whatever the module's own code raises under a tracer
        raise tracing_error(error, flattened.module) from error
    if not program.graph_signature.user_outputs:
        raise ModelImportError(module_place(flattened.module, ""), "returns no tensor")
    return program


def _dynamic_shapes(open_dims: Sequence[OpenDims]) -> Any:
    """Return the dimensions as PyTorch takes them for positional arguments, None for fixed ones."""
    if not any(open_dims):
        return None
    dims = {
        dim.name: torch.export.Dim(dim.name, min=dim.extents.low, max=dim.most)
        for one in open_dims
        for dim in one
    }
    return (tuple({dim.axis: _derived(dims[dim.name], dim) for dim in one} for one in open_dims),)


def _derived(root: Any, dim: OpenDim) -> Any:
    multiple = dim.times * root if dim.times != 1 else root
    return multiple + dim.plus if dim.plus else multiple


def _distinct(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return new tensors of the same forms: tensors of a call may be one and the same."""
    return tuple(torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in tensors)


def _refuse_side_effects(
    module: torch.nn.Module, program: torch.export.ExportedProgram, change: str
) -> None:
    """Refuse what a tuned model would leave out: writes to state and arguments, random numbers."""
    if change:
        raise ModelImportError(
            module_place(module, change.split(" ")[0].rpartition(".")[0]),
            f"its forward does more than compute results: {change}",
            hint="if it only fills a cache, call the module once before",
        )
    with quiet_exporter():
        plain = program.run_decompositions({})  # functional: writes become extra results
    for spec in plain.graph_signature.output_specs:
        if spec.kind in _CHANGES:
            target = str(spec.target).removeprefix("module.")
            scope = target.rpartition(".")[0] if spec.kind is OutputKind.BUFFER_MUTATION else ""
            raise ModelImportError(
                module_place(module, scope),
                f"its forward {_CHANGES[spec.kind]} {target}, which a tuned model would not",
            )
    for node in plain.graph.nodes:
        if _draws_random_numbers(node):
            raise ModelImportError(
                module_place(module, node_scope(node)),
                f"operator {node.target} draws random numbers, ONNX Runtime would draw others",
            )


def _draws_random_numbers(node: torch.fx.Node) -> bool:
    """Return True for random operators, unless they only have an option to drop something out."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    expected = node.target._schema.arguments
    given = {
        argument.name: argument.default_value
        for argument in expected
        if argument.has_default_value()
    }
    given |= (
        dict(zip((argument.name for argument in expected), node.args, strict=False)) | node.kwargs
    )
    trains = all(given[name] for name in _TRAINING if name in given)
    return trains and all(given[name] != 0 for name in _PROBABILITIES if name in given)


def _check_module(module: torch.nn.Module) -> None:
    for name, submodule in module.named_modules():
        if isinstance(submodule, torch.jit.ScriptModule):
            raise ModelImportError(
                module_place(module, name),
                "is a script module, which cannot be exported",
                hint="give the Python module it was made of",
            )
    for name, tensor in tensors_of(module):
        place = module_place(module, name.rpartition(".")[0])
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise ModelImportError(
                place, f"{name} has no shape yet", hint="call the lazy module once before"
            )
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise ModelImportError(
                place,
                f"{name} is not a dense CPU tensor",
                got=f"{tensor.device}, {tensor.layout}",
                hint="move the module with .cpu()",
            )


@contextmanager
def _restored(module: torch.nn.Module) -> Iterator[None]:
    """Put back every attribute and every member of a module afterwards."""
    tables = [
        table
        for submodule in module.modules()
        for table in (
            submodule.__dict__,
            submodule._parameters,
            submodule._buffers,
            submodule._modules,
        )
    ]
    saved = [(table, dict(table)) for table in tables]
    try:
        yield
    finally:
        for table, members in saved:
            _put_back(table, members)


def _put_back(table: dict[str, Any], members: Mapping[str, Any]) -> None:
    for key in [key for key in table if key not in members]:
        del table[key]
    for key, value in members.items():
        if key not in table or table[key] is not value:
            table[key] = value


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module that a data-parallel or a compiled wrapper holds."""
    for wrapper, name in _WRAPPED.items():
        inner = getattr(module, name, None) if type(module).__name__ == wrapper else None
        if isinstance(inner, torch.nn.Module):
            return unwrapped(inner)
    return module
