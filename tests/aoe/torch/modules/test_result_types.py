"""Results have the types PyTorch gives them, and derivatives that ride on tensors are not lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from support.engine.untuned import UntunedEngine  # noqa: E402
from support.optimized_modules import Scaled, optimize, untuned  # noqa: E402# noqa: E402
from torch import nn  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

from aoe import FallbackWarning  # noqa: E402
from aoe.errors import AccuracyError  # noqa: E402
from aoe.tuner.mode import TuneSettings  # noqa: E402

OPERATORS: dict[str, Any] = {
    "sum": lambda x: x.sum(0),
    "sum of all": lambda x: x.sum(),
    "sum in float32": lambda x: x.sum(0, dtype=torch.float32),
    "mean": lambda x: x.mean(0),
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin(1, keepdim=True),
    "argmax": lambda x: x.argmax(0),
    "max and its place": lambda x: tuple(x.max(0)),
    "cumsum": lambda x: x.cumsum(0),
    "prod": lambda x: x.prod(1),
    "softmax": lambda x: x.softmax(0),
    "exp": lambda x: x.exp(),
    "true division": lambda x: x / 2,
    "floor division": lambda x: x // 2,
    "comparison": lambda x: x > 1,
    "number": lambda x: x + 1,
    "fraction": lambda x: x * 0.5,
    "matmul": lambda x: x @ x.t(),
    "clamp": lambda x: x.clamp(0, 1),
    "norm": lambda x: x.norm(dim=0),
    "var": lambda x: x.var(0),
    "sum of a sum": lambda x: x.sum(0, keepdim=True) + x,
}
DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
NOT_IN_ONNX_RUNTIME = {
    "bool": {"max and its place", "argmax", "amax", "amin", "floor division"},
    "uint8": {"matmul"},
    "int8": {"matmul", "clamp"},
    "int16": set(OPERATORS) - {"comparison", "fraction", "true division"},
}
"""What the engine refuses with a message, so that no result can be of a wrong type."""


class Each(nn.Module):
    """Returns what every operator makes of its argument."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def forward(self, x: Any) -> Any:
        return {name: OPERATORS[name](x) for name in self.names}


def _computed_by_torch(x: Any, dtype: str) -> list[str]:
    found = []
    for name, operator in OPERATORS.items():
        try:
            operator(x)
        except (RuntimeError, TypeError, NotImplementedError):
            continue  # PyTorch does not have it for this type
        if name not in NOT_IN_ONNX_RUNTIME.get(dtype, ()):
            found.append(name)
    return found


@pytest.fixture(autouse=True)
def _inference() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    DTYPES,
)
def test_every_result_has_the_type_and_shape_it_has_in_pytorch(dtype: str) -> None:
    x = (torch.rand(3, 4) * 3).to(getattr(torch, dtype))
    module = Each(_computed_by_torch(x, dtype)).eval()
    assert module.names
    tuned = optimize(module, x)
    expected, found = module(x), tuned(x)
    for name in module.names:
        pairs = zip(_leaves(expected[name]), _leaves(found[name]), strict=True)
        for one, other in pairs:
            assert (other.dtype, other.shape) == (one.dtype, one.shape), name
            torch.testing.assert_close(other, one, rtol=1e-2, atol=1e-2, msg=name)


def _leaves(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.slow
def test_a_compiled_graph_returns_float16_where_pytorch_does() -> None:
    torch.compiler.reset()
    x = torch.rand(3, 4).half()
    compiled = torch.compile(lambda x: (x.sum(0), x.amax(1), x.cumsum(0)), backend=untuned)
    assert [result.dtype for result in compiled(x)] == [torch.float16] * 3
    torch.compiler.reset()


class Changing(UntunedEngine):
    """Writes a model whose only result went through one more node."""

    def __init__(self, op_type: str, *inputs: str, **attributes: int) -> None:
        super().__init__()
        self._more = onnx.helper.make_node(op_type, ["whole", *inputs], ["y"], **attributes)

    def __call__(self, settings: TuneSettings, env: Any, progress: Any) -> Path:
        proto = onnx.load(str(settings.model))
        (output,) = proto.graph.output
        for node in proto.graph.node:
            node.output[:] = ["whole" if name == output.name else name for name in node.output]
        self._more.output[:] = [output.name]
        proto.graph.node.append(self._more)
        for name, number in (("from", 0), ("to", 1)):
            value = onnx.numpy_helper.from_array(np.array([number], np.int64), name)
            proto.graph.initializer.append(value)
        output.type.tensor_type.elem_type = 11 if self._more.op_type == "Cast" else 1
        output.type.tensor_type.ClearField("shape")
        onnx.save(proto, str(settings.model))
        return super().__call__(settings, env, progress)


@pytest.mark.parametrize(
    "engine", [Changing("Cast", to=onnx.TensorProto.DOUBLE), Changing("Slice", "from", "to")]
)
def test_a_model_with_other_results_is_refused(engine: Changing) -> None:
    with pytest.raises(AccuracyError, match="other types, shapes or strides"):
        optimize(nn.ReLU().eval(), torch.rand(2, 3), engine=engine)


of_torch_itself = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


@pytest.mark.slow
@of_torch_itself
def test_tangents_of_arguments_are_computed_by_pytorch() -> None:
    module, x, direction = Scaled().eval().requires_grad_(False), torch.rand(2, 3), torch.rand(2, 3)
    tuned = optimize(module, x)
    with forward_ad.dual_level():
        torch.testing.assert_close(tuned(x), module(x))  # served: there is no tangent
        with pytest.warns(FallbackWarning, match="forward-mode"):
            tangent = forward_ad.unpack_dual(tuned(forward_ad.make_dual(x, direction))).tangent
    torch.testing.assert_close(tangent, module(x) * module.weight * direction)


@pytest.mark.slow
@of_torch_itself
def test_jvp_is_computed_by_pytorch() -> None:
    module, x, direction = Scaled().eval().requires_grad_(False), torch.rand(2, 3), torch.rand(2, 3)
    tuned = optimize(module, x)
    with pytest.warns(FallbackWarning):
        found = torch.func.jvp(tuned, (x,), (direction,))
    torch.testing.assert_close(found, torch.func.jvp(module, (x,), (direction,)))
