"""Convolutions of a training graph: each part is computed as PyTorch does it, or a faster way.

A convolution is a module of its own in the graph. Of its backward pass the gradients of image and
weights are chosen apart, so that oneDNN keeps either one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from aoe.device.registry import resolve_target
from aoe.device.toolchain import find_toolchain
from aoe.errors import AoeError, MeasurementError, first_line
from aoe.torch.modules.training import choice
from aoe.torch.modules.training.convolution_ways import (
    WAYS,
    Attributes,
    Compute,
    Convolution,
    Library,
    Part,
    kernel_sources,
    load_library,
)
from aoe.torch.modules.training.loops import LoopCompiler, Loops
from aoe.torch.modules.training.records import (
    NOT_COMPARED,
    NOT_TUNED,
    SLOWER,
    KnownWay,
    WayRecords,
)
from aoe.torch.modules.training.region_settings import RegionSettings
from aoe.torch.modules.training.regions import RegionOutcome, name_of, tensor_text
from aoe.workload import TRAINING_CONVOLUTION, Operation, TensorSpec, Workload

_LEAST_PRODUCTS = 1 << 16
"""Products below which a convolution costs less than the call around it."""
_KEPT = (Part.RESULT, Part.IMAGE, Part.WEIGHTS)
Key = tuple[Any, ...]


class Decide(Protocol):
    """Decides between PyTorch and other ways; see `graphs.Choice`."""

    def order(self, calls: Mapping[str, Any], arguments: Sequence[Any]) -> Sequence[str]:
        """Return names of calls, the fastest first."""

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        """True if a part is to be computed that way."""

    def told(self, outcome: RegionOutcome) -> None:
        """Keep the outcome of a part for a report."""


class ConvolutionModule(torch.nn.Module):  # type: ignore[misc]
    """A convolution, or its backward pass, in a graph.

    Args:
        attributes: What it is beside its tensors.
        mask: Gradients wanted of image, weights and bias; None for the forward pass.
        operators: The operator it is made of, in a graph of its tensors.

    Attributes:
        example: Tensors of the last call in a form nothing was chosen for.
    """

    def __init__(
        self,
        attributes: Attributes,
        mask: tuple[bool, bool, bool] | None,
        operators: torch.fx.Graph,
    ) -> None:
        super().__init__()
        self.attributes = attributes
        self.mask = mask
        self._operators = operators
        self.example: tuple[torch.Tensor, ...] = ()
        self._chosen: dict[Key, Mapping[Part, Compute]] = {}
        self._is_over = False

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Compute it of image, weights and bias, or of gradient, image and weights."""
        ways = self._chosen.get(_key(tensors))
        if ways:
            return self._compute(ways, tensors)
        if ways is None and not self._is_over and _is_computed(tensors):
            self.example = tensors
        if self.mask is None:
            return self.attributes.result(*tensors)
        gradient, image, weights = tensors
        return self.attributes.gradients(gradient, image, weights, self.mask)

    def _compute(self, ways: Mapping[Part, Compute], tensors: Sequence[torch.Tensor]) -> Any:
        if self.mask is None:
            return ways[Part.RESULT](*tensors)
        gradient, image, weights = tensors
        wants_image, wants_weights, wants_bias = self.mask
        by_way = (Part.IMAGE in ways, Part.WEIGHTS in ways)
        left = wants_image and not by_way[0], wants_weights and not by_way[1]
        slopes = [None, None, None]
        if any(left):
            # sums of the bias come with the gradient of the weights, or cost a pass of their own
            mask = (*left, wants_bias and left[1])
            slopes = list(self.attributes.gradients(gradient, image, weights, mask))
        if wants_image and by_way[0]:
            slopes[0] = ways[Part.IMAGE](gradient, weights)
        if wants_weights and by_way[1]:
            slopes[1] = ways[Part.WEIGHTS](image, gradient)
        if wants_bias and slopes[2] is None:
            slopes[2] = gradient.sum((0, 2, 3))
        return tuple(slopes)

    @property
    def has_kernels(self) -> bool:
        """True if a part of it is computed another way than PyTorch's."""
        return any(self._chosen.values())

    def parts(self) -> tuple[Part, ...]:
        """Return the result, or the gradients that are wanted, as parts."""
        if self.mask is None:
            return (Part.RESULT,)
        return tuple(part for part, wanted in zip(_KEPT[1:], self.mask, strict=False) if wanted)

    def called(self) -> Convolution | None:
        """Return the convolution of the example, None without one."""
        if not self.example:
            return None
        image, weights = self.example[:2] if self.mask is None else self.example[1:]
        return Convolution(
            attributes=self.attributes,
            image=tuple(image.shape),
            weights=tuple(weights.shape),
            is_last=not _in_planes(self.example),
        )

    def arguments(self, part: Part) -> tuple[torch.Tensor, ...]:
        """Return what a part takes of the example."""
        if part is Part.RESULT:
            return self.example
        gradient, image, weights = self.example
        return (gradient, weights) if part is Part.IMAGE else (image, gradient)

    def use(self, ways: Mapping[Part, Compute]) -> None:
        """Compute calls like the example these ways from now on."""
        self._chosen[_key(self.example)] = ways

    def forget(self, *, is_over: bool) -> None:
        """Let go of the example; once it is over, no other is kept."""
        self.example = ()
        self._is_over = is_over

    def computed(self) -> Callable[..., Any]:
        """Return what computes it."""
        return self.__call__

    def operators(self) -> torch.fx.Graph:
        """Return the operator it was made of."""
        return self._operators


def _alone(node: torch.fx.Node, tensors: Sequence[torch.fx.Node]) -> torch.fx.Graph:
    """Return a graph of one operator, which takes these tensors."""
    graph = torch.fx.Graph()
    given = {read: graph.placeholder(read.name) for read in tensors}
    graph.output(graph.node_copy(node, given.__getitem__))
    return graph


def _key(tensors: Sequence[torch.Tensor]) -> Key:
    return tuple((one.shape, one.stride(), one.dtype) for one in tensors)


def _is_computed(tensors: Sequence[torch.Tensor]) -> bool:
    """True for images in planes, or all with channels innermost, weights and bias in order."""
    is_plain = all(
        type(one) in (torch.Tensor, torch.nn.Parameter)
        and one.dtype is torch.float32
        and one.device.type == "cpu"
        and one.numel() > 0
        for one in tensors
    )
    images, weights = _images_and_weights(tensors)
    biases = (one for one in tensors if one.dim() == 1)
    if not is_plain or not all(one.is_contiguous() for one in (weights, *biases)):
        return False
    if _in_planes(tensors):  # weights of other strides are for results whose channels are innermost
        return bool(weights.stride() == torch.empty(weights.shape, device="meta").stride())
    return all(one.is_contiguous(memory_format=torch.channels_last) for one in images)


def _in_planes(tensors: Sequence[torch.Tensor]) -> bool:
    """True if all images are; those of one channel, or of one pixel, are so in either layout."""
    return all(one.is_contiguous() for one in _images_and_weights(tensors)[0])


def _images_and_weights(
    tensors: Sequence[torch.Tensor],
) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
    """Return image or images, the gradient being one, and the weights; a bias is left out."""
    images = [one for one in tensors if one.dim() == 4]
    weights = images.pop(1 if len(tensors) < 3 or tensors[-1].dim() < 4 else 2)
    return images, weights


def cut_convolutions(graph_module: torch.fx.GraphModule) -> list[ConvolutionModule]:
    """Make modules of the convolutions of images in a graph, which is changed; return these."""
    found: list[ConvolutionModule] = []
    graph = graph_module.graph
    for node in list(graph.nodes):
        made = _module_of(node) if node.op == "call_function" else None
        if made is None:
            continue
        module, tensors = made
        name = f"convolution_{len(found)}"
        graph_module.add_module(name, module)
        with graph.inserting_before(node):
            call = graph.call_module(name, tuple(tensors))
        call.meta = dict(node.meta)
        node.replace_all_uses_with(call)
        graph.erase_node(node)
        found.append(module)
    return found


def _module_of(
    node: torch.fx.Node,
) -> tuple[ConvolutionModule, Sequence[torch.fx.Node]] | None:
    name = name_of(node)
    if name == "convolution" and len(node.args) == 9:
        *tensors, strides, pads, dilations, is_transposed, _, groups = node.args
        mask = None
    elif name == "convolution_backward" and len(node.args) == 11:
        *tensors, _, strides, pads, dilations, is_transposed, _, groups, wanted = node.args
        mask = (bool(wanted[0]), bool(wanted[1]), bool(wanted[2]))
    else:
        return None
    tensors = [one for one in tensors if one is not None]
    values = [one.meta.get("val") for one in tensors]
    if is_transposed or any(
        not isinstance(one, torch.Tensor) or one.dtype is not torch.float32 for one in values
    ):
        return None
    lists = [tuple(one) for one in (strides, pads, dilations)]
    if values[0].dim() != 4 or any(len(one) != 2 for one in lists):
        return None
    if not all(isinstance(extent, int) for one in lists for extent in one):
        return None
    attributes = Attributes(strides=lists[0], pads=lists[1], dilations=lists[2], groups=groups)
    return ConvolutionModule(attributes, mask, _alone(node, tensors)), tensors


def choose_ways(
    modules: Sequence[ConvolutionModule],
    make_settings: Callable[[], RegionSettings],
    decide: Decide,
    make_loops: Callable[[RegionSettings], Loops] = LoopCompiler,
) -> tuple[str, ...]:
    """Choose how convolutions are computed that were called; return the ways that were taken.

    Convolutions of one form are compared once. What an earlier process has decided is taken as it
    is. What the bank has a record of is compared with PyTorch alone, and without searching nothing
    else is.
    """
    called: dict[tuple[Convolution, tuple[Part, ...]], list[ConvolutionModule]] = {}
    for module in modules:
        convolution = module.called()
        if convolution is not None:
            called.setdefault((convolution, module.parts()), []).append(module)
    if not called:
        return ()
    race = _Race.of(make_settings(), decide, make_loops)
    found: dict[tuple[Convolution, Part, int], Compute | None] = {}
    taken: list[str] = []
    for (convolution, parts), members in called.items():
        first = members[0]
        for part in parts:
            arguments = first.arguments(part)
            key = (convolution, part, len(arguments))
            if key not in found:
                name, found[key] = race.winner(convolution, part, arguments, places=len(members))
                taken.append(f"{convolution} {part} {name}")
        ways = {
            part: way
            for part in parts
            if (way := found[convolution, part, len(first.arguments(part))]) is not None
        }
        for module in members:
            module.use(ways)
    return tuple(taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Race:
    """Compares ways."""

    settings: RegionSettings
    decide: Decide
    library: Library | None
    kept: Loops | None  # Keeps what was decided for the next process
    records: WayRecords
    end_s: float

    @classmethod
    def of(
        cls,
        settings: RegionSettings,
        decide: Decide,
        make_loops: Callable[[RegionSettings], Loops],
    ) -> _Race:
        _, target = resolve_target(settings.tune.soc_version, 1)
        kept, library = None, None
        try:
            kept = make_loops(settings)
            library = load_library(kept, find_toolchain(settings.env), target.l2_bytes)
        except AoeError:  # without a compiler there are products by PyTorch
            pass
        return cls(
            settings=settings,
            decide=decide,
            library=library,
            kept=kept,
            records=WayRecords(settings),
            end_s=time.monotonic() + settings.limit_s,
        )

    def winner(
        self,
        convolution: Convolution,
        part: Part,
        arguments: Sequence[torch.Tensor],
        *,
        places: int,
    ) -> tuple[str, Compute | None]:
        """Return the way that is faster than PyTorch and as exact, None if none is."""
        workload = workload_of(convolution, part)
        found = _Found(reason=SLOWER)
        is_large = convolution.products >= _LEAST_PRODUCTS
        if is_large:
            found = self._found(workload, convolution, part, arguments)
        kind = "convolution" if part is Part.RESULT else "convolution_backward"
        self.decide.told(
            RegionOutcome(
                direction=self.settings.direction,
                operators=(f"aten.{kind}",),
                shapes=tuple(map(tensor_text, arguments)),
                way=found.name,
                reason=found.reason,
                is_known=found.is_known,
                workloads=(workload,) if is_large else (),
                places=places,
                compute=partial(convolution.eager(part), *arguments),
            )
        )
        return found.name, found.way

    def _found(
        self,
        workload: Workload,
        convolution: Convolution,
        part: Part,
        arguments: Sequence[torch.Tensor],
    ) -> _Found:
        """Return the way that is known, else the fastest one."""
        made = {name: make(convolution, part, self.library) for name, make in WAYS.items()}
        offered = {name: way for name, way in made.items() if way is not None}
        digest = self._digest(convolution, part, arguments)
        known = self.records.known(workload, self._kept(digest), tuple(offered))
        if known is not None and (known.reason or known.way not in offered):
            is_known = known.reason != NOT_TUNED
            return _Found(reason=known.reason or SLOWER, is_known=is_known)
        if known is not None and known.is_checked:
            return _Found(known.way, offered[known.way], is_known=True)
        if known is None and time.monotonic() > self.end_s:
            return _Found(reason="no time is left")
        eager = convolution.eager(part)
        tried = offered if known is None else {known.way: offered[known.way]}
        try:
            name = self._fastest(workload, eager, tried, arguments)
        except MeasurementError as error:  # of a busy machine: nothing is kept
            return _Found(reason=f"{NOT_COMPARED}: {first_line(error)}")
        if known is None and name:
            measure = partial(choice.region_measurement, eager, offered[name], arguments)
            self.records.keep(workload, name, measure, trials=len(offered))
        elif known is None and offered:
            self.records.note(workload, trials=len(offered))
        if self.kept is not None and (name or not self.settings.tune.lookup_only):
            self.kept.keep(digest, name)
        reason, is_known = "" if name else SLOWER, known is not None
        return _Found(name, offered.get(name), reason=reason, is_known=is_known)

    def _kept(self, digest: str) -> KnownWay | None:
        """Return the verdict of the kernel cache, which has the name of a way or none."""
        name = self.kept.verdict(digest) if self.kept is not None else None
        if name is None:
            return None
        return KnownWay(way=name) if name else KnownWay(reason=SLOWER)

    def _digest(
        self, convolution: Convolution, part: Part, arguments: Sequence[torch.Tensor]
    ) -> str:
        facts = (str(convolution), part.value, str(len(arguments)))
        if self.kept is None:
            return ""
        return self.kept.digest("convolution", kernel_sources(), *facts)

    def _fastest(
        self,
        workload: Workload,
        eager: Compute,
        ways: Mapping[str, Compute],
        arguments: Sequence[torch.Tensor],
    ) -> str:
        """Return the fastest way that gains and is in no quarantine, empty where there is none."""
        for name in self.decide.order({"": eager, **ways}, arguments):
            if not name:
                break
            if self.records.is_refused(workload, name) or not _agrees(eager, ways[name], arguments):
                continue
            if self.decide.region(eager, ways[name], arguments):
                return name
        return ""


@dataclass(frozen=True, slots=True)
class _Found:
    """A way to compute a part."""

    name: str = ""  # Of the way, empty for PyTorch's own
    way: Compute | None = None
    reason: str = ""  # Why PyTorch computes it; empty if it does not
    is_known: bool = False  # True if it was on record


def _agrees(eager: Compute, way: Compute, arguments: Sequence[torch.Tensor]) -> bool:
    if eager(*arguments).stride() != way(*arguments).stride():
        return False
    return not choice.disagreement(eager, way, arguments, spreads=True)


def workload_of(convolution: Convolution, part: Part) -> Workload:
    """Return what a part computes, for records."""
    one = convolution.attributes
    tensors = {
        Part.RESULT: (convolution.image, convolution.weights, convolution.result),
        Part.IMAGE: (convolution.result, convolution.weights, convolution.image),
        Part.WEIGHTS: (convolution.image, convolution.result, convolution.weights),
    }
    *read, made = tensors[part]
    operation = Operation(
        op_type="convolution" if part is Part.RESULT else "convolution_backward",
        domain="aten",
        inputs=("x0", "x1"),
        output="t0",
        attributes={
            "strides": one.strides,
            "pads": one.pads,
            "dilations": one.dilations,
            "group": one.groups,
            "part": part.value,
            **({"channels_last": 1} if convolution.is_last else {}),
        },
    )
    return Workload(
        op_type=TRAINING_CONVOLUTION,
        inputs=tuple(TensorSpec(shape=shape) for shape in read),
        operations=(operation,),
        output=TensorSpec(shape=made),
    )


def convolution_of(workload: Workload) -> tuple[Convolution, Part]:
    """Return the convolution a record is of, and the part of it.

    Raises:
        ValueError: the record is of something else.
    """
    (operation,) = workload.operations
    found = operation.attributes
    shapes = [spec.shape for spec in (*workload.inputs, workload.output)]
    try:
        part = Part(str(found["part"]))
        strides, pads, dilations = (_pair(found[name]) for name in ("strides", "pads", "dilations"))
        attributes = Attributes(
            strides=strides, pads=pads, dilations=dilations, groups=int(str(found["group"]))
        )
        image, weights = {
            Part.RESULT: shapes[:2],
            Part.IMAGE: shapes[:0:-1],
            Part.WEIGHTS: shapes[::2],
        }[part]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no part of a convolution: {error}") from error
    is_last = bool(found.get("channels_last"))
    return Convolution(attributes=attributes, image=image, weights=weights, is_last=is_last), part


def _pair(attribute: object) -> tuple[int, int]:
    match attribute:
        case (int(down), int(across)):
            return down, across
    raise TypeError(f"no pair of extents: {attribute}")
