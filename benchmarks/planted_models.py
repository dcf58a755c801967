"""Models with one planted problem each: what `aoe advise` has to find in them, and what helps.

They are large enough for a gain to show where there is one; whether there is one depends on the
machine and on the release of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper
from support.contracts.small_models import SmallModel

from aoe.advice.causes import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedModel:
    """A model and its problem."""

    build: Callable[[], onnx.ModelProto]  # Makes it
    # Why an operator of it is slow; None where only an action is looked for.
    cause: Cause | None = None
    action: str = ""  # What has to be tried; empty where nothing but tuning helps
    op_type: str = ""  # Of the operator with the cause; empty for any


def _reorders() -> onnx.ModelProto:
    small = SmallModel()
    x = small.conv(small.input(1, 32, 64, 64), 32, 32, 3)
    for _ in range(3):
        x = small.op("Transpose", x, perm=[0, 1, 3, 2])
        x = small.op("Relu", small.conv(x, 32, 32, 1))
    return small.model(x)


def _small_channels() -> onnx.ModelProto:
    small = SmallModel()
    x = small.op("Relu", small.conv(small.input(1, 6, 256, 256), 6, 6, 3))
    return small.model(small.conv(x, 6, 6, 3))


def _odd_channels() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(1, 16, 96, 96)
    x = small.op("Relu", small.conv(x, 16, 20, 3))
    for _ in range(3):
        x = small.op("Relu", small.conv(x, 20, 20, 3))
    return small.model(small.conv(x, 20, 16, 3))


def _odd_product() -> onnx.ModelProto:
    small = SmallModel()
    x = small.op("MatMul", small.input(1025, 1025), small.weight(1025, 5))
    return small.model(small.op("Tanh", x))


def _not_fused() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(1, 32, 96, 96)
    for _ in range(3):
        x = small.conv(x, 32, 32, 1)
        x = small.op("Elu", small.op("Softplus", x))
    return small.model(x)


def _without_kernel() -> onnx.ModelProto:
    small = SmallModel()
    x = small.op("Relu", small.input(64, 4096))
    ids = small.op("NonZero", x)
    return small.model(small.op("ReduceMax", small.op("Cast", ids, to=TensorProto.FLOAT)))


def _threads() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(1, 16, 8, 8)
    for _ in range(24):
        x = small.op("Relu", small.conv(x, 16, 16, 1))
    return small.model(x)


def _memory() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(1, 1024, 1024)
    return small.model(small.op("Tanh", small.op("Mul", x, small.weight(1, 1024, 1024))))


def _cache() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(32, 16, 224, 224)
    for _ in range(4):
        x = small.op("Tanh", small.op("Mul", x, small.positive(1)))
    return small.model(x)


def _constant() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(1, 64, 256)
    table = small.weight(64, 256)
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, [64, 256])
    done = helper.make_tensor_value_info("state_out", TensorProto.FLOAT, [64, 256])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="go_on"),
            helper.make_node("Mul", ["state", table], ["scaled"], name="scaled"),
            helper.make_node("Tanh", ["scaled"], ["state_out"], name="tanh"),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            state,
        ],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), done],
    )
    steps, go = small.constant(np.array(8, np.int64)), small.constant(np.array(True))
    made = small.op("Loop", steps, go, table, body=body)
    return small.model(small.op("Relu", small.op("Add", x, made)))


def _resize() -> onnx.ModelProto:
    small = SmallModel()
    x = small.conv(small.input(1, 16, 88, 88), 16, 32, 3)
    scales = small.constant(np.array([1, 1, 175 / 88, 175 / 88], np.float32))
    x = small.op("Resize", x, "", scales, mode="linear")
    return small.model(small.conv(x, 32, 16, 1))


def _activation() -> onnx.ModelProto:
    small = SmallModel()
    x = small.conv(small.input(1, 16, 96, 96), 16, 32, 3)
    x = small.op("Mul", x, small.op("Tanh", small.op("Softplus", x)))
    return small.model(small.conv(x, 32, 16, 3))


def _powers() -> onnx.ModelProto:
    small = SmallModel()
    return small.model(small.op("Pow", small.input(64, 16384), small.constant(3.0)))


def _layer_norm() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(512, 384)
    for _ in range(4):
        x = small.op("Relu", x)
        x = small.op("LayerNormalization", x, small.positive(384), small.weight(384), axis=-1)
    return small.model(x)


def _instance_norm() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(1, 16, 96, 96)
    for before, after in ((16, 32), (32, 32), (32, 16)):
        x = small.conv(x, before, after, 3)
        x = small.op("InstanceNormalization", x, small.positive(after), small.weight(after))
        x = small.op("Relu", x)
    return small.model(x)


def _old_opset() -> onnx.ModelProto:
    small = SmallModel(opset=13)
    x = small.input(1, 64, 48, 48)
    mean = small.op("ReduceMean", x, axes=[1], keepdims=1)
    distance = small.op("Sub", x, mean)
    square = small.op("Mul", distance, distance)
    variance = small.op("ReduceMean", square, axes=[1], keepdims=1)
    root = small.op("Sqrt", small.op("Add", variance, small.constant(1e-5)))
    x = small.op("Mul", small.op("Div", distance, root), small.positive(64, 1, 1))
    return small.model(small.op("Add", x, small.weight(64, 1, 1)))


def _divided() -> onnx.ModelProto:
    small = SmallModel()
    x = small.op("Relu", small.conv(small.input(1, 32, 96, 96), 32, 64, 1))
    left, right = small.ops("Split", x, outputs=2, axis=1)
    made = small.op("Relu", small.conv(left, 32, 32, 3))
    return small.model(small.conv(small.op("Concat", made, right, axis=1), 64, 32, 1))


def _single_rows() -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(1, 1024)
    for _ in range(3):
        x = small.op("Relu", small.op("MatMul", x, small.weight(1024, 1024)))
    return small.model(x)


PLANTED: Mapping[str, PlantedModel] = MappingProxyType(
    {
        "reorders": PlantedModel(build=_reorders, cause=Cause.REORDERS),
        "small-channels": PlantedModel(
            build=_small_channels, cause=Cause.SMALL_CHANNELS, action="channels-to-a-block"
        ),
        "odd-channels": PlantedModel(
            build=_odd_channels, cause=Cause.UNALIGNED, action="channels-to-a-block"
        ),
        "odd-product": PlantedModel(build=_odd_product, cause=Cause.UNALIGNED, op_type="MatMul"),
        "not-fused": PlantedModel(build=_not_fused, cause=Cause.NOT_FUSED),
        "no-kernel": PlantedModel(build=_without_kernel, cause=Cause.NO_KERNEL, op_type="NonZero"),
        "threads": PlantedModel(build=_threads, cause=Cause.THREADS, action="fewer-threads"),
        "memory": PlantedModel(build=_memory, cause=Cause.MEMORY),
        "cache": PlantedModel(build=_cache, cause=Cause.CACHE, action="batch-split"),
        "constant": PlantedModel(
            build=_constant, cause=Cause.CONSTANT, action="constants-once", op_type="Loop"
        ),
        "resize": PlantedModel(build=_resize, action="integer-resize"),
        "hard-swish": PlantedModel(build=_activation, action="activation-hard-swish"),
        "relu": PlantedModel(build=_activation, action="activation-relu"),
        "powers": PlantedModel(build=_powers, action="power-as-product"),
        "layer-norm": PlantedModel(build=_layer_norm, action="normalization-rms"),
        "instance-norm": PlantedModel(build=_instance_norm, action="normalization-batch"),
        "old-opset": PlantedModel(build=_old_opset, action="newer-opset"),
        "divided": PlantedModel(build=_divided, action="convolution-split"),
        "single-rows": PlantedModel(build=_single_rows, action="larger-batch"),
    }
)
"""Each cause and each action at least once; a lower precision only where a user allows it."""
