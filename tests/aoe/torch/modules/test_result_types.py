"""Results have the types PyTorch gives them, and derivatives that ride on tensors are not lost."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

import aoe.torch  # noqa: E402
from aoe.errors import AccuracyError  # noqa: E402
from aoe.om.loading import FallbackWarning  # noqa: E402
from aoe.torch.modules import optimization  # noqa: E402
from aoe.torch.modules.served import ServedModel  # noqa: E402

pytestmark = pytest.mark.usefixtures("engine")

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


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_result_has_the_type_and_shape_it_has_in_pytorch(dtype: str) -> None:
    x = (torch.rand(3, 4) * 3).to(getattr(torch, dtype))
    module = Each(_computed_by_torch(x, dtype)).eval()
    assert module.names
    tuned = aoe.torch.optimize(module, x)
    expected, found = module(x), tuned(x)
    for name in module.names:
        pairs = zip(_leaves(expected[name]), _leaves(found[name]), strict=True)
        for one, other in pairs:
            assert (other.dtype, other.shape) == (one.dtype, one.shape), name
            torch.testing.assert_close(other, one, rtol=1e-2, atol=1e-2, msg=name)


def _leaves(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def test_a_compiled_graph_returns_float16_where_pytorch_does() -> None:
    torch._dynamo.reset()
    x = torch.rand(3, 4).half()
    compiled = torch.compile(lambda x: (x.sum(0), x.amax(1), x.cumsum(0)), backend="aoe")
    assert [result.dtype for result in compiled(x)] == [torch.float16] * 3
    torch._dynamo.reset()


@pytest.mark.parametrize("change", [lambda t: t.double(), lambda t: t[:1]])
def test_a_model_with_other_results_is_refused(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = ServedModel.compute
    monkeypatch.setattr(ServedModel, "compute", lambda self, call: change(compute(self, call)))
    with pytest.raises(AccuracyError, match="other types, shapes or strides"):
        optimization.optimize(nn.ReLU().eval(), torch.rand(2, 3))


of_torch_itself = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


class Scaled(nn.Module):
    """An argument times a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))

    def forward(self, x: Any) -> Any:
        return (x * self.weight).exp()


@of_torch_itself
def test_tangents_of_arguments_are_computed_by_pytorch() -> None:
    module, x, direction = Scaled().eval().requires_grad_(False), torch.rand(2, 3), torch.rand(2, 3)
    tuned = aoe.torch.optimize(module, x)
    with forward_ad.dual_level():
        torch.testing.assert_close(tuned(x), module(x))  # served: there is no tangent
        with pytest.warns(FallbackWarning, match="forward-mode"):
            tangent = forward_ad.unpack_dual(tuned(forward_ad.make_dual(x, direction))).tangent
    torch.testing.assert_close(tangent, module(x) * module.weight * direction)


@of_torch_itself
def test_jvp_is_computed_by_pytorch() -> None:
    module, x, direction = Scaled().eval().requires_grad_(False), torch.rand(2, 3), torch.rand(2, 3)
    tuned = aoe.torch.optimize(module, x)
    with pytest.warns(FallbackWarning):
        found = torch.func.jvp(tuned, (x,), (direction,))
    torch.testing.assert_close(found, torch.func.jvp(module, (x,), (direction,)))
