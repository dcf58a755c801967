"""A PyTorch module from an ONNX model, with the parameters the file names.

`onnx2torch` makes the module. What it does not know of models exported for training is put into
words it knows before: a newer opset, batch normalisation that updates its statistics, the loss
operators. Its modules call a weight after its node, and take some for constants; here each is
named and ordered as the initializers of the file are, which an exporter writes as the model of
the training script lists its parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from onnx import numpy_helper, version_converter
from onnx.shape_inference import InferenceError
from torch import nn
from torch.nn import functional

from aoe.errors import EngineNotInstalledError, ModelImportError
from aoe.graph.protos import copied, refill

_OPSET = 17
"""Newest opset of which `onnx2torch` knows most operators."""
_LATER_RESULTS = ("BatchNormalization", "Dropout", "LayerNormalization", "MaxPool")
"""Operators with results behind the first one that exporters list and nobody reads."""
_CONTAINER = "initializers"
"""Module in which `onnx2torch` keeps weights that belong to no module of their own."""
_GRAPH = "_graph"
_FOLDED = "_bias"
"""Ending of what torch's exporter makes of a batch normalisation behind `conv.weight`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainableModel:
    """A model that computes its loss."""

    # Takes the inputs of the file in their order, returns the loss; named as the file.
    module: nn.Module
    caveat: str  # Why a script's model may have other parameters, empty where nothing speaks for it


def trainable_model(proto: onnx.ModelProto, name: str, where: str) -> TrainableModel:
    """Return the module of a model whose only output is its loss.

    Args:
        proto: Of static shapes.
        name: Of the model.
        where: Who asks, for messages.

    Raises:
        EngineNotInstalledError: there is no `onnx2torch`, or not for this PyTorch.
        ModelImportError: it cannot be converted, or has no parameters.
    """
    if not any(_is_weight(tensor) for tensor in proto.graph.initializer):
        raise ModelImportError(
            where,
            "nothing in it can be trained",
            got="no initializer of floating point",
            hint="export the model with its parameters as initializers",
        )
    convert, graph_of = _converter(where)
    readable = _readable(proto, where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a package that is no part of this one
            if readable.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
                # onnx2torch's own inference does not follow shapes that are computed, and it takes
                # an extent nobody knows for 0
                readable = onnx.shape_inference.infer_shapes(readable, data_prop=True)
            converted = convert(readable, attach_onnx_mapping=True)
    except (InferenceError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ModelImportError(
            where,
            f"onnx2torch cannot make a PyTorch module of it: {error}",
            hint="tune the training script itself: aoe --job_type=4 --script TRAIN.py",
        ) from error
    weights = _Weights(proto)
    for node_name, node in graph_of(readable.graph).nodes.items():
        weights.claim(converted.get_submodule(node_name), node.input_values)
    weights.claim_contained(converted)
    kind = type(name, (_FileModel,), {})  # the name of a training is that of its class
    return TrainableModel(
        module=kind(converted, weights.in_order(), _place_of_loss(readable)),
        caveat=weights.caveat(),
    )


def _converter(where: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    try:
        from onnx2torch import convert
        from onnx2torch.onnx_graph import OnnxGraph
    except ModuleNotFoundError as error:
        raise EngineNotInstalledError(
            where,
            f"training a model file needs {error.name}, which is not installed",
            hint="python -m pip install 'aoebank[gdat]'",
        ) from error
    except (ImportError, RuntimeError, AttributeError) as error:  # torchvision of another torch
        raise EngineNotInstalledError(
            where,
            f"onnx2torch cannot be imported: {error}",
            got=f"torch {torch.__version__}",
            hint="install the torchvision made for this torch, from where that came from",
        ) from error
    register_losses()
    return convert, OnnxGraph


def _readable(proto: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Return the model in words `onnx2torch` knows."""
    readable = copied(proto)
    whole = {
        tensor.name
        for tensor in proto.graph.initializer
        if tensor.data_type == onnx.TensorProto.INT64 and numpy_helper.to_array(tensor).all()
    }
    read = {name for node in proto.graph.node for name in node.input}
    read |= {value.name for value in proto.graph.output}
    for node in readable.graph.node:
        if node.op_type in _LATER_RESULTS:  # onnx2torch takes one result of these for several
            while len(node.output) > 1 and node.output[-1] not in read:
                node.output.pop()
        if node.op_type == "BatchNormalization":  # which it is in training is the module's business
            kept = [one for one in node.attribute if one.name != "training_mode"]
            refill(node.attribute, kept)
        if node.op_type == "Reshape" and node.input[1] in whole:
            del node.attribute[:]  # allowzero, which says something of extents of 0 only
    opset = next((one.version for one in readable.opset_import if one.domain in ("", "ai.onnx")), 0)
    if opset <= _OPSET:
        return readable
    try:
        return version_converter.convert_version(readable, _OPSET)
    except RuntimeError as error:
        first = str(error).strip().splitlines()[-1:]
        raise ModelImportError(
            where,
            f"cannot be put into an older opset: {''.join(first)}",
            got=f"opset {opset}",
            expected=f"{_OPSET}, which onnx2torch reads",
            hint=f"export it with opset_version={_OPSET}",
        ) from error


def _place_of_loss(proto: onnx.ModelProto) -> int:
    """Return which result of its node the loss is."""
    loss = proto.graph.output[0].name
    node = next(node for node in proto.graph.node if loss in node.output)
    return list(node.output).index(loss)


def _is_weight(tensor: onnx.TensorProto) -> bool:
    """True if an initializer can be a parameter.

    A scalar is taken for a constant, and a single number too that an exporter has named.
    """
    kinds = (
        *(onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE),
        *(onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16),
    )
    is_number = all(extent == 1 for extent in tensor.dims)
    return (
        tensor.data_type in kinds
        and len(tensor.dims) > 0
        and not (is_number and not is_of_module(tensor.name))
    )


class _Weights:
    """Parameters of the converted modules, by the initializers they come from."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._arrays = {
            tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
            for tensor in proto.graph.initializer
            if _is_weight(tensor) and tensor.data_type != onnx.TensorProto.BFLOAT16
        }
        self._found: dict[str, nn.Parameter] = {}
        self._unnamed: list[nn.Parameter] = []
        self._shared: list[str] = []

    def claim(self, module: nn.Module, inputs: tuple[str, ...]) -> None:
        """Name the parameters a module of the converter made of its node's inputs."""
        free = [name for name in inputs if name in self._arrays]
        for key, parameter in list(module.named_parameters()):
            name = next((one for one in free if self._is(one, parameter)), None)
            if name is None:
                self._unnamed.append(parameter)
                continue
            free.remove(name)
            holder, _, attribute = key.rpartition(".")
            self._put(name, module.get_submodule(holder), attribute, parameter)

    def claim_contained(self, graph: Any) -> None:
        """Make parameters of weights the converter kept as constants."""
        container: Any = getattr(graph, _CONTAINER, None)
        for node in graph.graph.nodes:
            if node.op != "call_module":
                continue
            given = [one for one in (*node.args, *node.kwargs.values()) if one is not None]
            names = [one for one in graph.get_submodule(node.target).onnx_mapping.inputs if one]
            for value, name in zip(given, names, strict=False):
                if getattr(value, "op", "") != "get_attr" or name not in self._arrays:
                    continue
                attribute = value.target.removeprefix(f"{_CONTAINER}.")
                tensor = container._buffers.pop(attribute, None)
                if tensor is not None:
                    self._put(name, container, attribute, nn.Parameter(tensor))

    def in_order(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names, in the order of the file."""
        named = {name: self._found[name] for name in self._arrays if name in self._found}
        return named | {f"unnamed_{at}": one for at, one in enumerate(self._unnamed)}

    def caveat(self) -> str:
        """Return the reason why a script's model may list other parameters."""
        if self._unnamed:
            return f"{len(self._unnamed)} parameters are in no initializer"
        if self._shared:
            return (
                f"{self._shared[0]} is read in several places: it may stand for several "
                "parameters that were equal when the model was exported"
            )
        foreign = [
            name
            for name in self._found
            if not is_of_module(name) or name.removesuffix(_FOLDED) in self._found.keys() - {name}
        ]
        if foreign:
            return f"{foreign[0]} is no parameter of a module: the exporter made it of some"
        return ""

    def _put(self, name: str, holder: nn.Module, attribute: str, parameter: nn.Parameter) -> None:
        known = self._found.setdefault(name, parameter)
        if known is not parameter:
            self._shared.append(name)
        if known.shape != parameter.shape:  # the converter has turned it for this place
            self._unnamed.append(parameter)
            known = parameter
        setattr(holder, attribute, known)

    def _is(self, name: str, parameter: nn.Parameter) -> bool:
        array = self._arrays[name]
        if array.numel() != parameter.numel():
            return False
        turned = array.T if array.ndim == 2 else array
        return any(
            one.shape == parameter.shape and torch.equal(one.to(parameter.dtype), parameter)
            for one in (array, turned)
        )


def is_of_module(name: str) -> bool:
    """True if a name can be that of a parameter, `layers.0.weight`.

    >>> is_of_module("layers.0.weight"), is_of_module("onnx::MatMul_12"), is_of_module("val_3")
    (True, False, False)
    """
    parts = name.split(".")
    if parts[0].startswith("val_"):
        return False
    return all(part.isidentifier() or part.isdecimal() for part in parts)


class _FileModel(nn.Module):  # type: ignore[misc]
    """The loss of a model file; its parameters come first, named as in the file."""

    def __init__(self, graph: nn.Module, parameters: dict[str, nn.Parameter], place: int) -> None:
        super().__init__()
        for name, parameter in parameters.items():
            *way, last = _free_names(name)
            holder: nn.Module = self
            for part in way:
                if part not in holder._modules:
                    holder.add_module(part, nn.Module())
                holder = holder.get_submodule(part)
            holder.register_parameter(last, parameter)
        self.add_module(_GRAPH, graph)
        self._place = place

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the loss, or its mean."""
        loss = self._modules[_GRAPH](*inputs)
        if isinstance(loss, tuple | list):
            loss = loss[self._place]
        return loss if loss.ndim == 0 else loss.mean()


def _free_names(name: str) -> Iterator[str]:
    """Yield the parts of a name as attributes a module has not yet."""
    for part in name.split("."):
        yield part + "_" if not part or hasattr(nn.Module, part) or part == "training" else part


_VERSIONS = (12, 13)


class _Loss(nn.Module):  # type: ignore[misc]
    """One of the two loss operators.

    Args:
        takes_scores: True where log-softmax comes first.
        reduction: How the losses of single labels become one.
        ignore_index: Label that does not count.
        results: How many are asked for: the loss, and the logarithms of the probabilities.
    """

    def __init__(
        self, *, takes_scores: bool, reduction: str, ignore_index: int, results: int
    ) -> None:
        super().__init__()
        self._takes_scores = takes_scores
        self._reduction = reduction
        self._ignore_index = ignore_index
        self._results = results

    def forward(
        self, scores: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of scores [N, C, ...] and labels [N, ...]."""
        logarithms = scores.log_softmax(1) if self._takes_scores else scores
        loss = functional.nll_loss(
            logarithms,
            labels.long(),
            weight,
            ignore_index=self._ignore_index,
            reduction=self._reduction,
        )
        return loss if self._results == 1 else (loss, logarithms)


def register_losses() -> None:
    """Make both operators known to `onnx2torch`; a second time changes nothing."""
    from onnx2torch.node_converters.registry import _CONVERTER_REGISTRY, add_converter
    from onnx2torch.utils.common import OperationConverterResult, onnx_mapping_from_node

    def convert(node: Any, graph: Any) -> Any:
        attributes = node.attributes
        module = _Loss(
            takes_scores=node.operation_type == "SoftmaxCrossEntropyLoss",
            reduction=attributes.get("reduction", "mean"),
            ignore_index=attributes.get("ignore_index", -100),
            results=len(node.output_values),
        )
        return OperationConverterResult(
            torch_module=module, onnx_mapping=onnx_mapping_from_node(node=node)
        )

    known = {description.operation_type for description in _CONVERTER_REGISTRY}
    for kind in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        if kind not in known:
            for version in _VERSIONS:
                add_converter(operation_type=kind, version=version)(convert)
