"""Convolutions of a training graph: each part is computed as PyTorch does it, or a faster way.

A convolution is a module of its own in the graph. Of its backward pass the gradients of image and
weights are chosen apart, so that oneDNN keeps either one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol

import torch

from aoe.device.registry import resolve_target
from aoe.device.toolchain import find_toolchain
from aoe.errors import AoeError
from aoe.measurement import estimate_speedup
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
from aoe.torch.modules.training.region_settings import RegionSettings, open_bank
from aoe.torch.modules.training.regions import RegionOutcome, name_of, tensor_text
from aoe.workload import Operation, TensorSpec, Workload

if TYPE_CHECKING:
    from aoe.bank.operators import OperatorBank

_FAMILY = "training_convolution"
"""Names the bank file: what a record says is of a convolution whose weights change."""
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

    Attributes:
        example: Tensors of the last call in a form nothing was chosen for.
    """

    def __init__(self, attributes: Attributes, mask: tuple[bool, bool, bool] | None = None) -> None:
        super().__init__()
        self.attributes = attributes
        self.mask = mask
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
            is_last=not image.is_contiguous(),
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


def _key(tensors: Sequence[torch.Tensor]) -> Key:
    return tuple((one.shape, one.stride(), one.dtype) for one in tensors)


def _is_computed(tensors: Sequence[torch.Tensor]) -> bool:
    """True for images in planes, or all with channels innermost, and weights in order."""
    is_plain = all(
        type(one) in (torch.Tensor, torch.nn.Parameter)
        and one.dtype is torch.float32
        and one.device.type == "cpu"
        and one.numel() > 0
        for one in tensors
    )
    images = [one for one in tensors if one.dim() == 4]
    weights = images.pop(1 if len(tensors) < 3 or tensors[-1].dim() < 4 else 2)
    layouts = (torch.contiguous_format, torch.channels_last)
    return (
        is_plain
        and weights.is_contiguous()
        and any(
            all(one.is_contiguous(memory_format=layout) for one in images) for layout in layouts
        )
    )


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
    return ConvolutionModule(attributes, mask), tensors


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
                name, found[key] = race.winner(convolution, part, arguments)
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
    bank: Callable[[], OperatorBank]  # Opened where it is asked
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
            bank=cache(partial(open_bank, settings, target)),
            end_s=time.monotonic() + settings.limit_s,
        )

    def winner(
        self,
        convolution: Convolution,
        part: Part,
        arguments: Sequence[torch.Tensor],
    ) -> tuple[str, Compute | None]:
        """Return the way that is faster than PyTorch and as exact, None if none is."""
        found = self._decided_before(convolution, part, arguments)
        if found is None:
            found = self._found(convolution, part, arguments)
            self._keep(convolution, part, arguments, found[0])
        name, way, is_known = found
        kind = "convolution" if part is Part.RESULT else "convolution_backward"
        self.decide.told(
            RegionOutcome(
                direction=self.settings.direction,
                operators=(f"aten.{kind}",),
                shapes=tuple(map(tensor_text, arguments)),
                way=name,
                reason="" if name else "no other way is faster than PyTorch",
                is_known=is_known,
            )
        )
        return name, way

    def _decided_before(
        self, convolution: Convolution, part: Part, arguments: Sequence[torch.Tensor]
    ) -> tuple[str, Compute | None, bool] | None:
        """Return what an earlier process has decided, None if nobody knows."""
        if self.kept is None:
            return None
        name = self.kept.verdict(self._digest(convolution, part, arguments))
        if not name:
            return None if name is None else ("", None, True)
        way = WAYS[name](convolution, part, self.library) if name in WAYS else None
        return None if way is None else (name, way, True)

    def _keep(
        self, convolution: Convolution, part: Part, arguments: Sequence[torch.Tensor], name: str
    ) -> None:
        is_decided = not self.settings.tune.lookup_only and time.monotonic() <= self.end_s
        if self.kept is not None and (name or is_decided):
            self.kept.keep(self._digest(convolution, part, arguments), name)

    def _digest(
        self, convolution: Convolution, part: Part, arguments: Sequence[torch.Tensor]
    ) -> str:
        assert self.kept is not None
        facts = (str(convolution), part.value, str(len(arguments)))
        return self.kept.digest("convolution", kernel_sources(), *facts)

    def _found(
        self,
        convolution: Convolution,
        part: Part,
        arguments: Sequence[torch.Tensor],
    ) -> tuple[str, Compute | None, bool]:
        """Return the name of a way, the way, and whether it was on record."""
        if convolution.products < _LEAST_PRODUCTS:
            return "", None, False
        workload = workload_of(convolution, part)
        stored = self.bank().find(workload)
        if stored is not None and not self.settings.tune.repeat_tune:
            names: tuple[str, ...] = (stored.schedule.algorithm,)
        elif self.settings.tune.lookup_only or time.monotonic() > self.end_s:
            return "", None, False
        else:
            names = tuple(WAYS)
        made = {
            name: way
            for name in names
            if name in WAYS and (way := WAYS[name](convolution, part, self.library)) is not None
        }
        eager = convolution.eager(part)
        for name in self.decide.order({"": eager, **made}, arguments):
            if not name:
                break
            way = made[name]
            if _agrees(eager, way, arguments) and self.decide.region(eager, way, arguments):
                if stored is None or stored.schedule.algorithm != name:
                    self._record(workload, name, eager, way, arguments)
                return name, way, stored is not None
        return "", None, stored is not None

    def _record(
        self,
        workload: Workload,
        name: str,
        eager: Compute,
        way: Compute,
        arguments: Sequence[torch.Tensor],
    ) -> None:
        from aoe.bank.verdicts import BankNote
        from aoe.schedule import Configuration, Schedule
        from aoebank import Event

        measurement = choice.region_measurement(eager, way, arguments)
        note = BankNote(
            event=Event.ADD,
            estimate=estimate_speedup(measurement),
            measurement=measurement,
            search={"method": "pairs", "trials": len(WAYS)},
        )
        self.bank().save(workload, Schedule(algorithm=name), Configuration({}), note)


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
        op_type=_FAMILY,
        inputs=tuple(TensorSpec(shape=shape) for shape in read),
        operations=(operation,),
        output=TensorSpec(shape=made),
    )
