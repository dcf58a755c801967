"""Records of parts of a training graph: a region as a workload of the bank, and back.

A workload has the operators of ATen with their arguments, and the shape, type and strides of each
tensor, so that a record alone is enough to compute its region again.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from aoe.device.registry import resolve_target
from aoe.errors import FallbackWarning, first_line
from aoe.measurement import Measurement, estimate_speedup
from aoe.schedule import Configuration, Schedule
from aoe.torch.modules.training import choice
from aoe.torch.modules.training.region_settings import RegionSettings, open_bank
from aoe.torch.modules.training.regions import Laid, RegionForm, name_of, results_of
from aoe.workload import TRAINING_LOOP, AttributeValue, Operation, TensorSpec, Workload
from aoebank import AoebankError

if TYPE_CHECKING:
    from aoe.bank.operators import OperatorBank

LOOP = "loop"
"""The strategy in the record of a region: the loop itself is written anew from the region."""
_ATEN = "aten"
_RESULT = "result"
"""Attribute of an operation: which of several results of its operator it stands for."""
_TENSORS = ("Tensor", "Optional[Tensor]")
SLOWER = "no faster than PyTorch"
"""Why PyTorch computes what was compared with it."""
NOT_COMPARED = "it cannot be compared"
"""Beginning of the reason of what has failed in this process: another one may compare it."""
NOT_TUNED = "not tuned before, and only what is known is used"
"""The same where nothing is searched."""
_UNUSUAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_TORCH, _DEVICE = "torch.", "device:"


class _Unsaid(Exception):
    """An argument no workload can say."""


# ---- a region as a workload ----


def workload_of_region(module: torch.fx.GraphModule, form: RegionForm) -> Workload | None:
    """Return what a region computes in one of its forms, None if no record can say it."""
    try:
        return _Writer(form).workload(module)
    except _Unsaid:
        return None


class _Writer:
    """Writes the operators of a region as those of a workload."""

    def __init__(self, form: RegionForm) -> None:
        self._form = form
        self._values: dict[torch.fx.Node, Any] = {}  # References, and numbers among the arguments
        self._calls: dict[torch.fx.Node, Operation] = {}
        self._operations: list[Operation] = []

    def workload(self, module: torch.fx.GraphModule) -> Workload:
        given = iter(self._form.arguments)
        tensors: list[TensorSpec] = []
        results: tuple[str, ...] = ()
        for node in module.graph.nodes:
            if node.op == "placeholder":
                value = next(given)
                self._values[node] = value
                if isinstance(value, Laid):
                    self._values[node] = f"x{len(tensors)}"
                    tensors.append(_spec(value))
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                results = tuple(map(self._reference, results_of(node.args[0])))
        first, *others = map(_spec, self._form.results)
        return Workload(
            op_type=TRAINING_LOOP,
            inputs=tuple(tensors),
            operations=tuple(self._operations),
            output=first,
            others=tuple(others),
            results=results,
        )

    def _call(self, node: torch.fx.Node) -> None:
        if name_of(node) == "getitem":
            read, index = node.args
            call = self._calls[read]
            attributes = {**call.attributes, _RESULT: index}
            self._add(node, replace(call, attributes=attributes))
            return
        call = self._operation(node)
        self._calls[node] = call
        returned = node.target._schema.returns
        if len(returned) > 1 or str(returned[0].type).startswith("List"):
            return  # each of its results is an operation of its own
        self._add(node, call)

    def _add(self, node: torch.fx.Node, call: Operation) -> None:
        reference = f"t{len(self._operations)}"
        self._operations.append(replace(call, output=reference))
        self._values[node] = reference

    def _operation(self, node: torch.fx.Node) -> Operation:
        inputs: list[str] = []
        attributes: dict[str, AttributeValue] = {}
        for place, argument in enumerate(node.target._schema.arguments):
            is_given = place < len(node.args) or argument.name in node.kwargs
            value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            if str(argument.type) in _TENSORS:
                is_tensor = isinstance(value, torch.fx.Node)
                inputs.append(self._reference(value) if is_tensor else "")
                if is_tensor or value is None:
                    continue
            if is_given and (value is not None or argument.default_value is not None):
                attributes[argument.name] = self._attribute(value)
        while inputs and not inputs[-1]:
            inputs.pop()
        overload = node.target._overloadname
        name = name_of(node) + (f".{overload}" if overload != "default" else "")
        return Operation(
            op_type=name, domain=_ATEN, inputs=tuple(inputs), output="", attributes=attributes
        )

    def _reference(self, node: Any) -> str:
        found = self._values.get(node) if isinstance(node, torch.fx.Node) else None
        if not isinstance(found, str):
            raise _Unsaid
        return found

    def _attribute(self, value: Any) -> AttributeValue:
        if isinstance(value, torch.fx.Node):
            value = self._values.get(value)
            if isinstance(value, str):
                raise _Unsaid
        if isinstance(value, tuple | list):
            items = tuple(map(self._attribute, value))
            if not all(isinstance(item, int | float) for item in items):
                raise _Unsaid
            return items  # type: ignore[return-value]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.device):
            return f"{_DEVICE}{value}"
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        raise _Unsaid


def _spec(laid: Laid) -> TensorSpec:
    dense = torch.empty(laid.shape, device="meta").stride()
    return TensorSpec(
        shape=laid.shape,
        dtype=str(laid.dtype).removeprefix(_TORCH),
        strides=() if laid.strides == dense else laid.strides,
    )


# ---- a workload as a region ----


def region_of_workload(workload: Workload) -> tuple[torch.fx.GraphModule, RegionForm]:
    """Return the region a record is of, and the form it was called in.

    Raises:
        ValueError: it has an operator this PyTorch does not know.
    """
    graph = torch.fx.Graph()
    values: dict[str, torch.fx.Node] = {
        f"x{number}": graph.placeholder(f"x{number}") for number in range(len(workload.inputs))
    }
    calls: dict[Any, torch.fx.Node] = {}
    for one in workload.operations:
        attributes = dict(one.attributes)
        index = attributes.pop(_RESULT, None)
        if index is None:
            values[one.output] = _called(graph, one, attributes, values)
            continue
        key = (one.op_type, one.inputs, tuple(attributes.items()))
        if key not in calls:
            calls[key] = _called(graph, one, attributes, values)
        values[one.output] = graph.call_function(operator.getitem, (calls[key], index))
    graph.output(tuple(values[name] for name in workload.results or (workload.result,)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    results = [_laid(spec) for spec in (workload.output, *workload.others)]
    form = RegionForm.of(module, [_laid(spec).empty() for spec in workload.inputs], results)
    if isinstance(form, str):
        raise ValueError(form)
    return module, form


def _called(
    graph: torch.fx.Graph,
    one: Operation,
    attributes: Mapping[str, AttributeValue],
    values: Mapping[str, torch.fx.Node],
) -> torch.fx.Node:
    name, _, overload = one.op_type.partition(".")
    try:
        target = getattr(getattr(torch.ops.aten, name), overload or "default")
    except AttributeError as error:
        raise ValueError(f"an operator this PyTorch does not have: {one.op_type}") from error
    references = iter(one.inputs)
    places: list[Any] = []
    keywords: dict[str, Any] = {}
    count = 0
    for argument in target._schema.arguments:
        reference = next(references, "") if str(argument.type) in _TENSORS else ""
        value: Any = argument.default_value
        if reference:
            value = values[reference]
        elif argument.name in attributes:
            value = _value(attributes[argument.name])
        is_given = bool(reference) or argument.name in attributes
        if argument.kwarg_only:
            keywords |= {argument.name: value} if is_given else {}
            continue
        places.append(value)
        count = len(places) if is_given or not argument.has_default_value() else count
    return graph.call_function(target, tuple(places[:count]), keywords)


def _value(attribute: AttributeValue) -> Any:
    if isinstance(attribute, tuple):
        return list(map(_value, attribute))
    if not isinstance(attribute, str):
        return attribute
    if attribute in _UNUSUAL:
        return _UNUSUAL[attribute]
    if attribute.startswith(_DEVICE):
        return torch.device(attribute.removeprefix(_DEVICE))
    is_member = attribute.startswith(_TORCH)
    return getattr(torch, attribute.removeprefix(_TORCH)) if is_member else attribute


def _laid(spec: TensorSpec) -> Laid:
    strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
    return Laid(shape=spec.shape, strides=tuple(strides), dtype=getattr(torch, spec.dtype))


def drawn(laid: Laid, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor that lies like this, with drawn numbers; integers are 0: `draw_places`."""
    pairs = zip(laid.shape, laid.strides, strict=True)
    count = 1 + sum((extent - 1) * step for extent, step in pairs)
    if laid.dtype is torch.bool:
        flat = torch.rand(count, generator=generator).lt(0.5)
    elif laid.dtype is torch.int64:
        flat = torch.zeros(count, dtype=torch.int64)
    else:
        flat = torch.randn(count, generator=generator).to(laid.dtype)
    return flat.as_strided(laid.shape, laid.strides)


def draw_places(
    module: torch.fx.GraphModule, arguments: Sequence[torch.Tensor], generator: torch.Generator
) -> None:
    """Draw the integers among the arguments of a region: classes, and rows of a table, there are.

    Args:
        module: The region.
        arguments: Of it, integers of 64 bits at 0; they are changed in place.
        generator: Of random numbers.
    """
    _PlaceDrawer(module, generator).run(*arguments)


class _PlaceDrawer(torch.fx.Interpreter):  # type: ignore[misc]
    """Draws integers where an operator reads them, which says how many there are to choose from.

    An operator may read a view of an argument; where it reads a copy, the argument stays 0.
    """

    def __init__(self, module: torch.fx.GraphModule, generator: torch.Generator) -> None:
        super().__init__(module)
        self._generator = generator

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.ops.aten.nll_loss_backward.default:
            _, logarithms, labels, *_ = args
            self._draw(labels, logarithms.shape[-1])
        elif target is torch.ops.aten.embedding_dense_backward.default:
            _, rows, count, *_ = args
            self._draw(rows, count)
        return super().call_function(target, args, kwargs)

    def _draw(self, places: torch.Tensor, count: int) -> None:
        """Draw the memory of integers: elements of a broadcast tensor share it."""
        whole = places.new_empty(0).set_(places.untyped_storage())
        whole.random_(count, generator=self._generator)


# ---- the bank ----


def training_bank(settings: RegionSettings) -> OperatorBank:
    """Return the bank of what is compared with PyTorch by all of its threads.

    Raises:
        AoebankError: the bank cannot be used.
    """
    _, target = resolve_target(settings.tune.soc_version, 1)
    return open_bank(settings, replace(target, core_num=torch.get_num_threads()))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWay:
    """How a part is computed, as earlier runs have decided it."""

    way: str = ""  # Empty where PyTorch computes the part
    reason: str = ""  # Why PyTorch computes it; empty where a way does
    is_checked: bool = True  # False if results of the way are to be compared here first


class WayRecords:
    """The bank of the parts of one pass: regions, results and gradients of convolutions.

    It is looked up before a part is measured, and written where a way wins. Verdicts of the kernel
    cache are for this compiler and this PyTorch. A loss among them counts; a gain counts where the
    bank has its record, so that no bank lacks what is used, and where nothing is searched. A way
    in quarantine is never used.

    Args:
        settings: How regions are tuned.
    """

    def __init__(self, settings: RegionSettings) -> None:
        self._settings = settings
        self._is_without = False

    @cached_property
    def _opened(self) -> OperatorBank:
        return training_bank(self._settings)

    @property
    def _bank(self) -> OperatorBank | None:
        """The bank, opened where it is asked: reading one takes as long as loading many loops."""
        return None if self._is_without else self._opened

    @property
    def _writes(self) -> bool:
        """True in the first process of a group, unless records are only looked up."""
        env = self._settings.env
        return not self._settings.tune.lookup_only and env.get("RANK", "0") == "0"

    def known(
        self, workload: Workload | None, kept: KnownWay | None, ways: Sequence[str]
    ) -> KnownWay | None:
        """Return the known way of a part, None if its ways are to be measured.

        Args:
            workload: Of the part, None where no record can say it.
            kept: Verdict of the kernel cache, None if it has none.
            ways: Names of all ways there are to compute the part.
        """
        found = kept
        if workload is not None:
            with self._doing_without():
                if (bank := self._bank) is not None:
                    found = self._in_bank(bank, workload, kept, ways)
        if found is None and self._settings.tune.lookup_only:
            return KnownWay(reason=NOT_TUNED)
        return found

    def _in_bank(
        self, bank: OperatorBank, workload: Workload, kept: KnownWay | None, ways: Sequence[str]
    ) -> KnownWay | None:
        if kept is not None and kept.reason:
            if kept.reason == SLOWER:
                self._note(bank, workload, len(ways))
            return kept
        if not self._settings.tune.repeat_tune:
            stored = bank.find(workload)  # never one in quarantine
            if stored is not None:
                if self._writes:
                    bank.adopt(workload)
                way = stored.schedule.algorithm
                return KnownWay(way=way, is_checked=kept is not None and kept.way == way)
            if _is_known_loss(bank, workload, len(ways)):
                self._note(bank, workload, len(ways))
                return KnownWay(reason=SLOWER)
        if kept is not None and self._settings.tune.lookup_only:
            reason = bank.quarantine_reason(workload) or _refusal(bank, workload, kept.way)
            return KnownWay(reason=reason) if reason else kept
        reasons = [reason for way in ways if (reason := _refusal(bank, workload, way))]
        return KnownWay(reason=reasons[0]) if reasons and len(reasons) == len(ways) else None

    def is_refused(self, workload: Workload, way: str) -> bool:
        """True if a way to compute a part is in quarantine."""
        with self._doing_without():
            if (bank := self._bank) is not None:
                return _refusal(bank, workload, way) is not None
        return False

    def keep(
        self,
        workload: Workload | None,
        way: str,
        measure: Callable[[], Measurement],
        *,
        trials: int = 1,
    ) -> None:
        """Write the record of what beats PyTorch.

        Args:
            workload: Of the part, None where no record can say it.
            way: What computes it.
            measure: Returns pairs over PyTorch.
            trials: Number of ways that were tried.
        """
        from aoe.bank.verdicts import BankNote
        from aoebank import Event

        if workload is None or not self._writes:
            return
        with self._doing_without():
            if (bank := self._bank) is None:
                return
            measurement = measure()
            has_record = bank.remembered(workload).strategy is not None
            note = BankNote(
                event=Event.UPDATE if has_record else Event.ADD,
                estimate=estimate_speedup(measurement),
                measurement=measurement,
                search={"method": "pairs", "trials": trials},
            )
            bank.save(workload, Schedule(algorithm=way), Configuration({}), note)

    def note(self, workload: Workload | None, *, trials: int = 1) -> None:
        """Note that nothing beats PyTorch, so that a later run does not try as many ways again.

        Args:
            workload: Of the part, None where no record can say it.
            trials: Number of ways that were tried.
        """
        if workload is None:
            return
        with self._doing_without():
            if (bank := self._bank) is not None:
                self._note(bank, workload, trials)

    def _note(self, bank: OperatorBank, workload: Workload, trials: int) -> None:
        """Note a loss the bank does not know: results are for machines without this cache."""
        from aoe.bank.verdicts import BankNote
        from aoebank import Event

        if not self._writes:
            return
        if _is_known_loss(bank, workload, trials):
            bank.adopt(workload)
            return
        search = {"method": "pairs", "trials": trials, "measured": trials, "limit": trials}
        bank.note([(workload, BankNote(event=Event.UNSATISFIED, search=search))])

    @contextmanager
    def _doing_without(self) -> Iterator[None]:
        """Go on without the bank where it cannot be read or written, and say so."""
        try:
            yield
        except AoebankError as error:
            self._is_without = True
            warnings.warn(
                f"aoe: no records of this training: {first_line(error)}",
                FallbackWarning,
                stacklevel=4,
            )


def _refusal(bank: OperatorBank, workload: Workload, way: str) -> str | None:
    """Return the reason of the quarantine a way is in, whether or not the bank has its record."""
    return bank.refusal(workload, Schedule(algorithm=way), Configuration({}))


def _is_known_loss(bank: OperatorBank, workload: Workload, trials: int) -> bool:
    """True if an earlier run on such a machine has tried as many ways, and none was faster."""
    return bank.failed_search(workload, trials, threshold=choice.REGION_GAIN) is not None
