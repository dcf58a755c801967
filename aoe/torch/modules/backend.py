"""`torch.compile(module, backend="aoe")`: each graph Dynamo finds runs through a tuned model."""

from __future__ import annotations

import math
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from aoe.errors import AoeError, FallbackWarning
from aoe.settings import environment, with_bank
from aoe.torch.fused_optimizers import advise_once
from aoe.torch.modules.training.graphs import MakeSettings, TrainingGraph
from aoe.torch.modules.training.region_settings import DIRECTIONS, RegionSettings
from aoe.torch.options import OptimizeOptions, engine_settings, make_options
from aoe.tuner.progress import SilentProgress
from aoebank import AoebankError

if TYPE_CHECKING:
    from aoe.torch.modules.compiled import OptimizedModule
    from aoe.torch.modules.open_shapes import OpenDim, OpenDims
    from aoe.torch.modules.optimization import Engine

DEFAULT_TIME_LIMIT_S = 60.0
"""Compiling waits for tuning, so a graph may not search for ever; the bank remembers the rest."""
MOST_WEIGHT_SETS = 8
"""Tuned models kept for one graph: modules of the same class share a graph, not their weights."""
_OPERATOR = re.compile(r"operator ([\w.]+)")
_RECURRENT = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)
"""Modules Dynamo makes no graph of. Source: torch/_dynamo/variables/builder.py."""
_STATIC = "_dynamo_static_input_type"
"""Mark of Dynamo on inputs that are parameters and buffers. Source: torch/_dynamo/variables."""


class Train(Protocol):
    """Makes what computes a graph whose gradients are wanted; see `TrainingGraph`."""

    def __call__(
        self,
        graph_module: torch.fx.GraphModule,
        example_inputs: Sequence[Any],
        make_settings: MakeSettings,
    ) -> Callable[..., Any]:
        """Make it."""


def aoe_backend(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    most_weight_sets: int = MOST_WEIGHT_SETS,
    train: Train = TrainingGraph,
) -> Callable[..., Any]:
    """Return a callable of a graph: a tuned model for inference, tuned regions for training.

    The graph is exported and tuned at its first call; where PyTorch made extents symbolic, once for
    all of them. What cannot be tuned (an operator without ONNX counterpart) runs in PyTorch after
    one `FallbackWarning`. Where gradients are wanted see `TrainingGraph`.

    Args:
        graph_module: The graph, with parameters and buffers among its inputs.
        example_inputs: What it was traced with.
        options: See `optimize`; `tuning_time_limit` is 60 seconds if it is not given.
        engine: What tunes, by default the engine itself.
        most_weight_sets: Most tuned models kept for the graph.
        train: Makes what computes a graph whose gradients are wanted.

    Raises:
        OptionError: an unknown option or value.
    """
    settings = make_options({"tuning_time_limit": DEFAULT_TIME_LIMIT_S, **(options or {})})
    if wants_gradients_of(example_inputs):
        if train is TrainingGraph:
            advise_once()
        return _training(graph_module, example_inputs, settings, train)
    shapes = graph_shapes(graph_module)
    if isinstance(shapes, str):
        _warn(shapes)
        eager: Callable[..., Any] = graph_module.forward
        return eager
    return CompiledGraph(graph_module, shapes, settings, engine, most_weight_sets)


@cache
def warn_of_recurrent_modules() -> None:
    """Warn where `torch.compile` gets this backend with modules Dynamo makes no graph of.

    Before PyTorch 2.15 Dynamo leaves a module that calls them to eager and asks no backend: without
    this, nobody says that nothing is tuned. A second call does nothing.
    """
    context = torch._dynamo.eval_frame.OptimizeContext
    compile_it = context.__call__

    def watched(self: Any, function: Any) -> Any:
        backend = self.callback
        while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
            backend = inner  # each wrapper of Dynamo's has what it wraps
        if getattr(backend, "compiler_fn", backend) is aoe_backend:
            _warn_of_recurrent(function)
        return compile_it(self, function)

    context.__call__ = watched


def _warn_of_recurrent(function: Any) -> None:
    is_method = getattr(function, "__name__", "") == "_call_impl"  # given by `Module.compile`
    module = function.__self__ if is_method else function
    if not isinstance(module, torch.nn.Module) or torch._dynamo.config.allow_rnn:
        return
    found = (f"nn.{type(one).__name__}" for one in module.modules() if isinstance(one, _RECURRENT))
    if names := " and ".join(dict.fromkeys(found)):
        warnings.warn(
            f"aoe backend: {type(module).__name__}: {names} runs in PyTorch, and before PyTorch "
            "2.15 all that calls it, since its compiler makes no graph of it; compile the modules "
            "beside it one by one, or tune its inference by aoe.torch.optimize",
            FallbackWarning,
            stacklevel=4,
        )


class CompiledGraph:
    """A graph that is tuned when it is first called.

    Args:
        graph_module: What Dynamo traced.
        shapes: Its symbolic extents.
        options: How to tune.
        engine: What tunes.
        most_weight_sets: Most tuned models kept.
    """

    def __init__(
        self,
        graph_module: torch.fx.GraphModule,
        shapes: GraphShapes,
        options: OptimizeOptions,
        engine: Engine | None,
        most_weight_sets: int,
    ) -> None:
        self._graph_module = graph_module
        self._shapes = shapes
        self._options = options
        self._engine = engine
        self._most_weight_sets = most_weight_sets
        self._static = [
            _is_static(node) for node in graph_module.graph.find_nodes(op="placeholder")
        ]
        self._tuned: dict[tuple[int | str, ...], _TunedGraph] = {}
        self._lock = threading.Lock()
        self._eager = False

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *inputs: Any) -> Any:
        """Compute the graph."""
        if self._eager and not self._tuned:
            return self._graph_module(*inputs)
        static = [
            isinstance(value, torch.nn.Parameter) or marked
            for value, marked in zip(inputs, self._static, strict=True)
        ]
        shapes = self._shapes
        numbers = {at: inputs[at].item() for at in shapes.numbers}
        derived = shapes.sizes.keys() | numbers.keys()
        places = [at for at in range(len(inputs)) if at not in derived]
        weights = {at: inputs[at] for at in places if static[at]}
        values = {at: inputs[at] for at in places if not static[at]}
        # numbers by their text: -0.0 is not 0.0
        key: tuple[int | str, ...] = (*map(id, weights.values()), *map(repr, numbers.values()))
        tuned = self._tuned.get(key)
        if tuned is None and not self._eager:
            with self._lock:
                tuned = self._tuned.get(key)
                if tuned is None and not self._eager:  # another thread may have given up
                    tuned = self._tune(key, numbers, weights, values)
        return self._graph_module(*inputs) if tuned is None else tuned.module(*values.values())

    def _tune(
        self,
        key: tuple[int | str, ...],
        numbers: Mapping[int, float],
        weights: Mapping[int, torch.Tensor],
        values: Mapping[int, torch.Tensor],
    ) -> _TunedGraph | None:
        """Return a tuned form of the graph, None (and no second attempt) if there is none."""
        from aoe.torch.modules.optimization import optimize_call  # which loads the engine

        most = self._most_weight_sets
        if len(self._tuned) >= most:
            self._give_up(f"the graph is used with more than {most} sets of weights and numbers")
            return None
        graph = with_numbers(self._graph_module, numbers)
        fixed = GraphWithWeights(graph, weights, tuple(values), self._shapes.sizes).eval()
        try:
            module = optimize_call(
                fixed,
                tuple(values.values()),
                {},
                self._options,
                progress=SilentProgress(),
                engine=self._engine,
                open_dims=self._shapes.open_dims(values, self._options.dynamic_max),
            )
        except (AoeError, AoebankError) as error:
            self._give_up(f"{_user_place(self._graph_module, str(error))}{error}")
            return None
        self._tuned[key] = _TunedGraph(module, tuple(weights.values()))
        return self._tuned[key]

    def _give_up(self, reason: str) -> None:
        self._eager = True
        _warn(reason)


class _TunedGraph:
    """A tuned graph, and the weights it was tuned with: they stay alive, so ids stay theirs."""

    def __init__(self, module: OptimizedModule, weights: Sequence[torch.Tensor]) -> None:
        self.module = module
        self._weights = tuple(weights)


class GraphWithWeights(torch.nn.Module):  # type: ignore[misc]
    """A graph whose parameters and buffers are its own, so that they are exported as constants."""

    STALE_REMEDY = "torch.compiler.reset() lets the graph be tuned again"

    def __init__(
        self,
        graph_module: torch.fx.GraphModule,
        weights: Mapping[int, torch.Tensor],
        places: Sequence[int],
        sizes: Mapping[int, tuple[int, int]],
    ) -> None:
        super().__init__()
        self.graph_module = graph_module
        self._places = tuple(places)
        self._sizes = dict(sizes)
        placeholders = graph_module.graph.find_nodes(op="placeholder")
        self._count = len(placeholders)
        self._weight_names = {
            at: _weight_name(placeholders[at], number) for number, at in enumerate(weights)
        }
        for at, weight in weights.items():
            if isinstance(weight, torch.nn.Parameter):
                self.register_parameter(self._weight_names[at], weight)
            else:
                self.register_buffer(self._weight_names[at], weight)

    def forward(self, *values: torch.Tensor) -> Any:
        inputs: dict[int, Any] = dict.fromkeys(range(self._count))
        inputs |= zip(self._places, values, strict=True)
        inputs |= {at: getattr(self, name) for at, name in self._weight_names.items()}
        for at, (tensor, axis) in self._sizes.items():
            inputs[at] = inputs[tensor].shape[axis]
        return self.graph_module(*inputs.values())


def wants_gradients_of(inputs: Sequence[Any]) -> bool:
    """True if a graph is one of training: grad mode is on, and an input requires a gradient."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _training(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: OptimizeOptions,
    train: Train,
) -> Callable[..., Any]:
    """Return the callable of a graph whose gradients are wanted."""
    name = _class_name(graph_module)
    return train(graph_module, example_inputs, partial(region_settings, options, name))


def region_settings(options: OptimizeOptions, name: str, direction: str) -> RegionSettings:
    """Return the settings for the regions of one direction of a training graph.

    Args:
        options: Of the graph.
        name: Class of its module.
        direction: One of `DIRECTIONS`.

    Raises:
        OptionError: a file or a variable has a value that cannot be meant.
        OutputError: the bank cannot be made.
    """
    env = environment()
    if (bank := options.tune.get("bank")) is not None:
        env = with_bank(env, Path(bank), writes=not options.tune.get("lookup_only"))
    given = {**options.tune, "output": Path()}
    limit_s = options.tune.get("tuning_time_limit")
    tune = engine_settings(Path(f"{name}_{direction}.onnx"), given, env)
    return RegionSettings(
        # what only looks up believes what there is, as tasks of a model file do
        tune=replace(tune, repeat_tune=tune.repeat_tune and not tune.lookup_only),
        env=env,
        name=name,
        direction=direction,
        limit_s=math.inf if limit_s is None else limit_s / len(DIRECTIONS),
    )


def _class_name(graph_module: torch.fx.GraphModule) -> str:
    """Return the class of the outermost module of a graph, for records."""
    for node in graph_module.graph.nodes:
        for _, kind in (node.meta.get("nn_module_stack") or {}).values():
            return str(kind).rpartition(".")[2].strip("'>")
    return "function"


def _is_static(node: torch.fx.Node) -> bool:
    return bool((node.meta.get("tensor_dict") or {}).get(_STATIC))


def _weight_name(node: torch.fx.Node, number: int) -> str:
    """Return a readable name out of Dynamo's, `l_self_modules_fc_parameters_weight_`."""
    name = re.sub(r"_(modules|parameters|buffers)_", "_", node.name.lower()).strip("_")
    return f"{name.removeprefix('l_self_').removeprefix('l_')}_{number}"


def _user_place(graph_module: torch.fx.GraphModule, message: str) -> str:
    """Return which module of the user holds the operator an error is about, if it names one."""
    operator = _OPERATOR.search(message)
    parts = operator[1].split(".") if operator else []
    for node in graph_module.graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        name = getattr(node.target, "__name__", str(node.target))
        if stack and any(name.endswith(part) for part in parts):
            path = re.sub(r"\['?(\w+)'?\]", r".\1", str(stack[-1][0]))
            return f"in {path.removeprefix('L.self').lstrip('.') or 'the module'}: "
    return ""


def _warn(reason: str) -> None:
    warnings.warn(f"aoe backend: a graph runs in PyTorch: {reason}", FallbackWarning, stacklevel=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicExtent:
    """An extent of a tensor that PyTorch treats as a symbol."""

    axis: int  # Of the tensor
    name: str  # Of the symbol; equal names are equal extents
    low: int  # Least extent
    high: int | None  # Largest extent, None for no end


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphShapes:
    """Symbolic extents, sizes and numbers among the arguments of a graph."""

    # Symbolic extents of a tensor, by its place among the arguments.
    symbols: Mapping[int, tuple[SymbolicExtent, ...]]
    # Arguments that are such extents themselves, by their place: place of a tensor that has it, and
    # axis.
    sizes: Mapping[int, tuple[int, int]]
    # Places of tensors that hold a number the graph reads, an epsilon or a factor.
    numbers: frozenset[int]

    def open_dims(
        self, values: Mapping[int, torch.Tensor], dynamic_max: int | None
    ) -> tuple[OpenDims, ...]:
        """Return the open dimensions of each tensor of a call; see `make_open_dim`."""
        from aoe.torch.modules.open_shapes import make_open_dim

        def opened(one: SymbolicExtent, extent: int) -> OpenDim:
            return make_open_dim(one.axis, one.name, one.low, one.high, extent, dynamic_max)

        return tuple(
            tuple(opened(one, value.shape[one.axis]) for one in self.symbols.get(at, ()))
            for at, value in values.items()
        )


def graph_shapes(graph_module: torch.fx.GraphModule) -> GraphShapes | str:
    """Return the symbolic extents of a graph's arguments, or why they are no ranges."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    examples = [node.meta.get("example_value") for node in placeholders]
    symbols: dict[int, tuple[SymbolicExtent, ...]] = {}
    homes: dict[str, tuple[int, int]] = {}
    for place, example in enumerate(examples):
        if isinstance(example, torch.Tensor):
            found = tuple(_symbolic(example))
            if any(not one.name for one in found):
                return "an extent of an argument is computed of others, not a range of its own"
            symbols[place] = found
            for one in found:
                homes.setdefault(one.name, (place, one.axis))
    sizes: dict[int, tuple[int, int]] = {}
    for place, example in enumerate(examples):
        if isinstance(example, torch.SymInt | torch.SymFloat | torch.SymBool):
            name = _name_of(example)
            if name not in homes:
                return f"the number {example} among its arguments is dynamic, and no extent"
            sizes[place] = homes[name]
    numbers = frozenset(place for place, node in enumerate(placeholders) if _is_number(node))
    return GraphShapes(symbols=symbols, sizes=sizes, numbers=numbers)


def _is_number(node: torch.fx.Node) -> bool:
    return bool(node.users) and all(
        user.op == "call_method" and user.target == "item" for user in node.users
    )


def with_numbers(
    graph_module: torch.fx.GraphModule, numbers: Mapping[int, float]
) -> torch.fx.GraphModule:
    """Return a graph that has the numbers of `GraphShapes.numbers` as constants.

    A float is a symbol to PyTorch where extents are, and no exporter takes a symbolic epsilon.
    """
    if not numbers:
        return graph_module
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    for place, node in enumerate(graph.find_nodes(op="placeholder")):
        if place in numbers:
            for user in tuple(node.users):
                user.replace_all_uses_with(numbers[place])
                graph.erase_node(user)
    return torch.fx.GraphModule(graph_module, graph)


def _symbolic(example: torch.Tensor) -> Iterator[SymbolicExtent]:
    for axis, extent in enumerate(example.shape):
        if isinstance(extent, torch.SymInt) and not extent.node.expr.is_number:
            bounds = extent.node.shape_env.bound_sympy(extent.node.expr)
            low, high = (
                int(one) if one.is_Integer else None for one in (bounds.lower, bounds.upper)
            )
            yield SymbolicExtent(axis=axis, name=_name_of(extent), low=max(1, low or 1), high=high)


def _name_of(number: Any) -> str:
    """Return the name of a symbol, the empty string for what is computed of symbols."""
    expression = number.node.expr
    return str(expression) if expression.is_Symbol else ""


# PyTorch imports this file where it is first asked for the backend, before it compiles
warn_of_recurrent_modules()
