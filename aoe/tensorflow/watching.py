"""`aoe.tensorflow.enable`: graphs of a script are frozen and tuned when they are first computed."""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aoe.errors import EngineNotInstalledError
from aoe.online.command import FolderTuning, run_aoe
from aoe.settings import environment
from aoe.tensorflow.options import MODES, script_options
from aoe.tuner.operator_choice import OPTION, OperatorChoice, choice_to_json
from aoebank import say

_MOST_GRAPHS = 16
_KERAS_BATCH = 32
"""Of `fit` and `predict` where nothing is said. Source: Keras."""
_BATCH_SIZES = {"fit": 2, "evaluate": 2, "predict": 1}
"""Place of `batch_size` among the positional arguments of a method. Source: Keras."""


def enable(
    aoe_mode: str | int | None = None,
    *,
    work_path: str | os.PathLike[str] | None = None,
    aoe_config_file: str | os.PathLike[str] | None = None,
    bank: str | Path | None = None,
    tuning_time_limit: float | None = None,
    trials: int | None = None,
) -> Watcher:
    """Tune what the script computes from here on, each graph when it is first computed.

    The script waits while `aoe` tunes in a process of its own, and goes on with what it computes
    itself: what is found is in the bank. Keras models are tuned in their inference form for the
    shapes they are called with, also while they train; other `tf.function`s as they are.

    Args:
        aoe_mode: 1 for subgraphs, 2 for operators; None for what `AOE_MODE` says, else 2.
        work_path: Directory for the results, which exists; None for the working directory, or
            what `ASCEND_WORK_PATH` says.
        aoe_config_file: File of settings of AOE's TensorFlow adapter.
        bank: Root of the bank, made if it is missing; None for what the variables say.
        tuning_time_limit: Seconds for the graphs of one step; None for no limit.
        trials: Most candidates measured for one operator; None for the default.

    Returns:
        What watches; `close()` ends it.

    Raises:
        OptionError: a value that cannot be meant.
        OutputError: the bank cannot be used.
        EngineNotInstalledError: no TensorFlow is installed.
    """
    options = script_options(
        aoe_mode, work_path, aoe_config_file, env=environment(), cwd=Path.cwd(), warn=_warn
    )
    tuning = FolderTuning(
        job_type=options.job_type,
        bank=bank,
        tuning_time_limit=tuning_time_limit,
        trials=trials,
        nonhomo_split=options.nonhomo_split,
    )
    tuning.environment()  # a bank that cannot be is found out before the first step
    tuner = GraphTuner(
        tuning,
        options.work_path,
        says_where=work_path is not None,
        tune_ops=options.tune_ops,
    )
    watcher = Watcher(_tensorflow(), tuner)
    watcher.start()
    atexit.register(watcher.say_what_is_left)
    say(f"aoe: {MODES[str(options.job_type)]} tuning of this script, in {options.work_path}")
    return watcher


@dataclass(frozen=True, slots=True)
class GraphTuner:
    """Hands graphs to `aoe`."""

    tuning: FolderTuning  # How they are tuned
    work_path: Path  # Where the results go
    # True if the script names that place, which then counts more than a variable.
    says_where: bool = field(kw_only=True)
    # The operators that are tuned; None for all.
    tune_ops: OperatorChoice | None = field(kw_only=True, default=None)

    def __call__(self, graphs: Sequence[FrozenGraph]) -> None:
        """Tune graphs; what fails is a warning, and the script goes on."""
        env = {"AOE_TENSORFLOW_PYTHON": sys.executable, **self.tuning.environment()}
        env.pop("AOE_MODE", None)
        if self.says_where:
            env.pop("ASCEND_WORK_PATH", None)
        say("in tune mode, training graph handled by tools")
        with tempfile.TemporaryDirectory(prefix="aoe_graphs_") as folder:
            arguments = self.tuning.arguments(self._written(graphs, Path(folder) / "graphs"))
            if self.tune_ops is not None:
                choice = Path(folder) / "tune_ops.json"
                choice.write_text(json.dumps(choice_to_json(self.tune_ops)), "utf-8")
                arguments.append(f"{OPTION}={choice}")
            code = run_aoe(arguments, env, self.work_path)
        if code:
            _warn(f"tuning ended with code {code}; the script goes on untuned")

    def _written(self, graphs: Sequence[FrozenGraph], folder: Path) -> Path:
        """Return a folder with a file for each graph."""
        folder.mkdir()
        for number, graph in enumerate(graphs):
            stem = re.sub(r"\W+", "_", graph.name).strip("_") or "graph"
            (folder / f"graph_{number + 1:02}_{stem}.pb").write_bytes(graph.content)
            say("Aoe tuning graph.")
        return folder


class Watcher:
    """Sees calls of `tf.function`s and Keras models in one thread; a context manager.

    Attributes:
        graphs: Names of the graphs that were tuned.
        problems: Why others were not, by name.

    Args:
        tf: The module `tensorflow`.
        tune: Takes the graphs of one step.
    """

    def __init__(self, tf: Any, tune: Callable[[Sequence[FrozenGraph]], None]) -> None:
        self.graphs: list[str] = []
        self.problems: dict[str, str] = {}
        self._tf = tf
        self._tune = tune
        self._thread = threading.get_ident()
        self._calls: list[ModelCall] = []
        self._models_seen = 0
        self._known: set[object] = set()
        self._kept: list[object] = []  # what ids are made of stays alive
        self._batch: int | None = None
        self._in_function = self._in_model = self._paused = False
        self._patched: list[tuple[Any, str, Any]] = []

    def say_what_is_left(self) -> None:
        """Say behind the script that its training loads nothing of what was tuned."""
        if self.graphs:
            say(
                "aoe: tuned for inference; a training of TensorFlow loads nothing from the bank, "
                "its steps stay TensorFlow's"
            )

    def start(self) -> None:
        """Begin to watch."""
        from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

        model = self._tf.keras.Model
        self._patch(Function, "__call__", self._function_called)
        self._patch(model, "__call__", self._model_called)
        for name, place in _BATCH_SIZES.items():
            self._patch(model, name, partial(self._looped, place))

    def close(self) -> None:
        """Stop watching."""
        self._paused = True
        for owner, name, plain in reversed(self._patched):
            setattr(owner, name, plain)
        self._patched.clear()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _patch(self, owner: Any, name: str, instead: Callable[..., Any]) -> None:
        plain = getattr(owner, name)

        def watched(this: Any, /, *args: Any, **kwargs: Any) -> Any:
            return instead(plain, this, args, kwargs)

        watched.__wrapped__ = plain  # type: ignore[attr-defined]
        watched.__doc__, watched.__name__ = plain.__doc__, name
        self._patched.append((owner, name, owner.__dict__.get(name, plain)))
        setattr(owner, name, watched)

    def _is_watching(self) -> bool:
        return (
            not self._paused
            and len(self.graphs) < _MOST_GRAPHS
            and threading.get_ident() == self._thread
        )

    # ---- calls ----

    def _looped(self, place: int, plain: Any, model: Any, args: Any, kwargs: Any) -> Any:
        """See how many rows a batch of `fit`, `evaluate` or `predict` has."""
        before, self._batch = self._batch, _batch_of(args, kwargs, place)
        try:
            return plain(model, *args, **kwargs)
        finally:
            self._batch = before

    def _model_called(self, plain: Any, model: Any, args: Any, kwargs: Any) -> Any:
        if self._in_model or not self._is_watching():
            return plain(model, *args, **kwargs)
        self._in_model = True
        try:
            result = plain(model, *args, **kwargs)
        finally:
            self._in_model = False
        is_eager = self._tf.executing_eagerly()
        if self._in_function or is_eager:  # else Keras only looks at shapes
            self._note(model, args, kwargs)
        if is_eager:
            self._tune_noted()
        return result

    def _function_called(self, plain: Any, function: Any, args: Any, kwargs: Any) -> Any:
        if self._in_function or self._in_model or not self._is_watching():
            return plain(function, *args, **kwargs)
        self._in_function, models_before = True, self._models_seen
        try:
            result = plain(function, *args, **kwargs)
        finally:
            self._in_function = False
        if id(function) not in self._known:
            self._known.add(id(function))
            self._kept.append(function)
            if self._models_seen == models_before:
                self._tune_all([lambda: freeze_function(self._tf, function, args, kwargs)])
        self._tune_noted()
        return result

    def _note(self, model: Any, args: Any, kwargs: Any) -> None:
        call = model_call(self._tf, model, args, kwargs, self._batch)
        if call is None:
            return
        self._models_seen += 1
        if call.key not in self._known:
            self._known.add(call.key)
            self._kept.append(model)
            self._calls.append(call)

    # ---- graphs ----

    def _tune_noted(self) -> None:
        calls, self._calls = self._calls, []
        self._tune_all([lambda call=call: freeze_model(self._tf, call) for call in calls])  # type: ignore[misc]

    def _tune_all(self, make: Sequence[Callable[[], FrozenGraph]]) -> None:
        graphs = []
        with self._unwatched():
            for one in make[: _MOST_GRAPHS - len(self.graphs)]:
                try:
                    graphs.append(one())
                except NotTunableError as error:
                    self.problems[f"graph {len(self.problems) + 1}"] = str(error)
                    _warn(f"a graph is left alone: {error}")
            if graphs:
                self.graphs += [graph.name for graph in graphs]
                self._tune(graphs)

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before


def _batch_of(args: Sequence[Any], kwargs: Any, place: int) -> int | None:
    """Return the rows of the first batch, None if that cannot be told without reading it.

    Args:
        args: Positional arguments of the call, the data first.
        kwargs: Named ones.
        place: Of `batch_size` among the positional ones.
    """
    data = args[0] if args else kwargs.get("x")
    given = args[place] if len(args) > place else kwargs.get("batch_size")
    if hasattr(data, "take") and hasattr(data, "element_spec"):  # a tf.data.Dataset
        first = _first_leaf(next(iter(data.take(1)), None))
        return int(first.shape[0]) if getattr(first, "shape", None) else None
    first = _first_leaf(data)  # a model of several inputs is given lists or dictionaries of them
    rows = len(first) if getattr(first, "shape", None) else None
    return rows if rows is None else min(rows, int(given or _KERAS_BATCH))


def _first_leaf(data: Any) -> Any:
    """Return the first tensor of nested data."""
    while isinstance(data, tuple | list | dict) and data:
        data = data[0] if isinstance(data, tuple | list) else next(iter(data.values()))
    return data


def _tensorflow() -> Any:
    try:
        import tensorflow
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise EngineNotInstalledError(
            "aoe.tensorflow",
            "TensorFlow is not installed",
            hint="python -m pip install 'aoebank[tensorflow]'",
        ) from error
    return tensorflow


def _warn(text: str) -> None:
    warnings.warn(f"aoe.tensorflow: {text}", stacklevel=3)


_STATEFUL = (
    "Assign",
    "ResourceApply",
    "ResourceGather",
    "IteratorGetNext",
    "PyFunc",
    "EagerPyFunc",
)
"""Beginnings of operators that only a training step has, or that no file can hold."""


class NotTunableError(Exception):
    """A graph that is left alone; the message says why."""


@dataclass(frozen=True, slots=True)
class FrozenGraph:
    """A graph as it is tuned."""

    name: str  # Of the model or the function
    content: bytes  # Bytes of a GraphDef whose variables are constants


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call of a Keras model: what it was called with, without the data."""

    model: Any  # The model
    given: Any  # Its positional and named arguments; tensors are replaced by their form
    key: object  # The same for calls of the same model and form


def model_call(
    tf: Any, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], batch: int | None
) -> ModelCall | None:
    """Return a call as it is tuned, None if it is one with symbols or without tensors.

    Args:
        tf: The module `tensorflow`.
        model: A Keras model.
        args: Positional arguments of the call.
        kwargs: Named ones.
        batch: Rows where the first extent is open.
    """
    given = (tuple(args), {name: value for name, value in kwargs.items() if name != "training"})
    leaves = tf.nest.flatten(given)
    forms = [_form(tf, leaf, batch) for leaf in leaves]
    if not any(isinstance(form, tf.TensorSpec) for form in forms):
        return None
    key = (id(model), tuple(map(str, forms)))
    return ModelCall(model=model, given=tf.nest.pack_sequence_as(given, forms), key=key)


def _form(tf: Any, leaf: Any, batch: int | None) -> Any:
    if not tf.is_tensor(leaf) and not hasattr(leaf, "__array__"):
        return leaf
    dtype, shape = tf.as_dtype(leaf.dtype), tf.TensorShape(leaf.shape)
    if shape.rank and shape[0] is None and batch is not None:
        shape = tf.TensorShape([batch, *shape[1:]])
    return tf.TensorSpec(shape, dtype)


def freeze_model(tf: Any, call: ModelCall) -> FrozenGraph:
    """Return the inference form of a model for the shapes of a call.

    Raises:
        NotTunableError: a shape stays open, or the graph cannot be frozen.
    """
    leaves = tf.nest.flatten(call.given)
    specs = [leaf for leaf in leaves if isinstance(leaf, tf.TensorSpec)]
    _check_shapes(specs)

    def forward(*tensors: Any) -> Any:
        given = iter(tensors)
        filled = [next(given) if isinstance(leaf, tf.TensorSpec) else leaf for leaf in leaves]
        args, kwargs = tf.nest.pack_sequence_as(call.given, filled)
        return call.model(*args, **kwargs, training=False)

    return _frozen(
        tf, str(call.model.name), lambda: tf.function(forward).get_concrete_function(*specs)
    )


def freeze_function(
    tf: Any, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> FrozenGraph:
    """Return a `tf.function` for the arguments it was called with.

    Raises:
        NotTunableError: it is a step of training, a shape stays open, or it cannot be frozen.
    """
    concrete = function.get_concrete_function(*args, **kwargs)
    types = {operation.type for operation in concrete.graph.get_operations()}
    stateful = sorted(kind for kind in types if kind.startswith(_STATEFUL))
    if stateful:
        raise NotTunableError(f"it changes what it reads: {', '.join(stateful[:3])}")
    _check_shapes([tensor for tensor in concrete.inputs if tensor.dtype != tf.resource])
    return _frozen(tf, str(function.name), lambda: concrete)


def _check_shapes(tensors: Sequence[Any]) -> None:
    for tensor in tensors:
        if not tensor.shape.is_fully_defined():
            raise NotTunableError(f"its shapes are open: {tensor.shape}")


def _frozen(tf: Any, name: str, make: Callable[[], Any]) -> FrozenGraph:
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2 as constants_for_variables,
    )

    try:
        # loops stay functions, as tf2onnx wants them: an LSTM lowered to Switch and Merge has
        # inputs in its loop that nobody gives. Source: tf2onnx 1.17, `tf_loader.from_function`
        frozen = constants_for_variables(make(), lower_control_flow=False, aggressive_inlining=True)
        content = frozen.graph.as_graph_def().SerializeToString()
    except (TypeError, ValueError, RuntimeError, tf.errors.OpError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise NotTunableError(f"it cannot be frozen: {first[:300]}") from error
    if not frozen.inputs or not frozen.outputs:
        raise NotTunableError("it has no inputs or no results")
    return FrozenGraph(name, content)
