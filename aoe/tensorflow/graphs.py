"""Calls of models and functions as frozen graphs of fixed shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_STATEFUL = (
    "Assign",
    "ResourceApply",
    "ResourceGather",
    "IteratorGetNext",
    "PyFunc",
    "EagerPyFunc",
)
"""What only a step of training has, or no file can hold."""


class NotTunableError(Exception):
    """A graph that is left alone; the message says why."""


@dataclass(frozen=True, slots=True)
class FrozenGraph:
    """A graph as it is tuned.

    Attributes:
        name: Of the model or the function.
        content: Bytes of a GraphDef whose variables are constants.
    """

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call of a Keras model: what it was called with, without the data.

    Attributes:
        model: The model.
        given: Its positional and named arguments; tensors are replaced by their form.
        key: The same for calls of the same model and form.
    """

    model: Any
    given: Any
    key: object


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
