"""As much of TensorFlow as `aoe.tensorflow` touches: functions, Keras models, frozen graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

RESOURCE = "resource"
EAGER = [True]


class Shape(tuple[Any, ...]):
    """A shape; extents may be None."""

    @property
    def rank(self) -> int:
        """Number of extents."""
        return len(self)

    def is_fully_defined(self) -> bool:
        """Whether no extent is open."""
        return None not in self


@dataclass(frozen=True)
class Spec:
    """The form of a tensor."""

    shape: Shape
    dtype: Any


class Concrete:
    """A traced function; the graph says what it was traced for."""

    def __init__(self, name: str, inputs: Sequence[Any], types: Sequence[str] = ()) -> None:
        self.inputs = [Spec(Shape(one.shape), one.dtype) for one in inputs]
        self.outputs = ["y"]
        self.graph = SimpleNamespace(
            get_operations=lambda: [SimpleNamespace(type=kind) for kind in types],
            as_graph_def=lambda: SimpleNamespace(SerializeToString=lambda: self.text.encode()),
        )
        self.text = f"{name} {[tuple(one.shape) for one in self.inputs]}"


class Function:
    """`tf.function`: eager outside, traced inside."""

    def __init__(self, python: Callable[..., Any], types: Sequence[str] = ()) -> None:
        self._python = python
        self._types = types
        self.name = python.__name__

    def __call__(self, *args: Any) -> Any:
        """Run traced."""
        with traced():
            return self._python(*args)

    def get_concrete_function(self, *args: Any) -> Concrete:
        """Trace for these arguments."""
        with traced():
            self._python(*args)
        return Concrete(self.name, args, self._types)


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Be inside of a function that is traced."""
    before, EAGER[0] = EAGER[0], False
    try:
        yield
    finally:
        EAGER[0] = before


class Model:
    """A Keras model; `seen` has the modes of its calls."""

    name = "net"

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._step = Function(lambda x: self(x, training=True))

    def __call__(self, x: Any, training: Any = None) -> Any:
        """Compute."""
        self.seen.append(training)
        return x

    def fit(self, x: Any, y: Any = None, batch_size: int | None = None) -> None:
        """Train a step on rows nobody counts."""
        self._on_rows(x)

    def evaluate(self, x: Any) -> None:
        """Do nothing."""

    def predict(self, x: Any, batch_size: int | None = None) -> None:
        """Compute a batch of rows nobody counts."""
        self._on_rows(x)

    def _on_rows(self, x: Any) -> None:
        x = next(iter(x.values())) if isinstance(x, dict) else x[0] if isinstance(x, list) else x
        self._step(Spec(Shape((None, *x.shape[1:])), x.dtype))


def install(patch: pytest.MonkeyPatch) -> Any:
    """Put the stand-in where TensorFlow would be imported from; return it."""
    tf: Any = ModuleType("tensorflow")
    tf.nest = SimpleNamespace(flatten=_flatten, pack_sequence_as=_pack)
    tf.TensorSpec, tf.TensorShape, tf.resource = Spec, Shape, RESOURCE
    tf.as_dtype = lambda dtype: np.dtype(dtype)
    tf.is_tensor = lambda value: isinstance(value, Spec)
    tf.executing_eagerly = lambda: EAGER[0]
    tf.function = Function
    tf.keras = SimpleNamespace(Model=Model)
    tf.errors = SimpleNamespace(OpError=KeyError)
    home: Any = ModuleType("polymorphic_function")
    home.Function = Function
    constants: Any = ModuleType("convert_to_constants")
    constants.convert_variables_to_constants_v2 = lambda concrete, **_: concrete
    eager = "tensorflow.python.eager.polymorphic_function"
    for name, module in {
        "tensorflow": tf,
        "tensorflow.python": ModuleType("python"),
        "tensorflow.python.eager": ModuleType("eager"),
        eager: ModuleType("package"),
        f"{eager}.polymorphic_function": home,
        "tensorflow.python.framework": ModuleType("framework"),
        "tensorflow.python.framework.convert_to_constants": constants,
    }.items():
        patch.setitem(__import__("sys").modules, name, module)
    return tf


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for name in sorted(value) for leaf in _flatten(value[name])]
    if isinstance(value, list | tuple) and not isinstance(value, Shape):
        return [leaf for item in value for leaf in _flatten(item)]
    return [value]


def _pack(like: Any, leaves: Sequence[Any]) -> Any:
    given = iter(leaves)

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: fill(value[name]) for name in sorted(value)}
        if isinstance(value, list | tuple) and not isinstance(value, Shape):
            return type(value)(fill(item) for item in value)
        return next(given)

    return fill(like)
