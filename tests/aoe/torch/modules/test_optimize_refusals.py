"""What `aoe.torch.optimize` refuses: an error with a name, the module untouched."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.engine.untuned import UntunedEngine  # noqa: E402
from support.optimized_modules import Branching, Linear, optimize, snapshot  # noqa: E402# noqa: E402
from support.tiers import few_every_day  # noqa: E402
from torch import nn  # noqa: E402

from aoe.errors import AccuracyError, ModelImportError  # noqa: E402
from aoe.tuner.mode import TuneSettings  # noqa: E402
from aoe.tuner.progress import Progress  # noqa: E402

pytestmark = pytest.mark.usefixtures("inference")


class Inside(nn.Module):
    """A parent that calls one child twice removed."""

    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Identity(), nn.ModuleDict({"attn": child})])

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        return self.layers[1]["attn"](self.layers[0](x))


class Bessel(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.bessel_j0(x)


class Random(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + torch.rand_like(x)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.seen += 1
        return x * self.seen


class CountingInPython(nn.Module):
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


class ThroughNumpy(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.from_numpy(x.numpy() * 2)


class Strange(nn.Module):
    def forward(self, x: Any) -> Any:
        raise ValueError("I do not like this")


@pytest.mark.parametrize(
    ("child", "message"),
    few_every_day(
        [
            (Branching(), "data-dependent"),
            (Bessel(), "bessel_j0 cannot be exported: ONNX has no counterpart"),
            (Random(), "rand_like.default draws random numbers"),
            (nn.Dropout(0.5), "draws random numbers"),
            (Counting(), "writes to its buffer layers.1.attn.seen"),
            (CountingInPython(), "calls was changed"),
            (ThroughNumpy(), "numpy"),
            (Strange(), "I do not like this"),
        ],
        2,
    ),
)
def test_an_error_names_the_inner_module_and_leaves_all_untouched(
    child: Any, message: str, engine: UntunedEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    module = Inside(child).eval()
    if isinstance(child, nn.Dropout):
        child.train()
    before = snapshot(module)
    values = {key: value.clone() for key, value in module.state_dict().items()}
    with pytest.raises(ModelImportError, match=message) as caught:
        optimize(module, torch.randn(2, 4), engine=engine)
    assert caught.value.where == f"module layers.1.attn ({type(child).__name__})"
    assert snapshot(module) == before
    assert all(torch.equal(value, values[key]) for key, value in module.state_dict().items())
    assert not engine.asked
    assert capfd.readouterr() == ("", "")


class WritesToInput(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.add_(1) * 2


class ReturnsObject(nn.Module):
    def forward(self, x: Any) -> Any:
        return x, object()


class ReturnsNothing(nn.Module):
    def forward(self, x: Any) -> Any:
        return None


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (WritesToInput(), torch.ones(4), "writes to its argument"),
        (ReturnsObject(), torch.ones(4), "returns a object"),
        (ReturnsNothing(), torch.ones(4), "returns no tensor"),
        (nn.Identity(), torch.ones(4), "returns no tensor"),
        (nn.ReLU(), (), "cannot be called with the example inputs"),
        (nn.ReLU(), 3, "without any tensor"),
        (nn.ReLU(), torch.ones(0, 3), "empty tensor"),
        (nn.ReLU(), torch.ones(3, dtype=torch.bfloat16), "bfloat16"),
        (nn.ReLU(), torch.ones(3).to_sparse(), "not a dense CPU tensor"),
        (nn.ReLU(), torch.ones(3, device="meta"), "not a dense CPU tensor"),
        (nn.LazyLinear(3), torch.ones(3, 3), "has no shape yet"),
        (nn.Linear(3, 3, device="meta"), torch.ones(3, 3), "not a dense CPU tensor"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(
    module: Any, inputs: Any, message: str
) -> None:
    with pytest.raises(ModelImportError, match=message):
        optimize(module.eval(), inputs)


def test_a_script_module_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Linear(3, 3))
    with pytest.raises(ModelImportError, match="script module"):
        optimize(scripted, torch.ones(3, 3))


def test_an_export_that_computes_something_else_is_refused() -> None:
    class Wrong(UntunedEngine):
        def __call__(self, settings: TuneSettings, env: Any, progress: Progress) -> Path:
            import onnx

            proto = onnx.load(str(settings.model))
            for tensor in proto.graph.initializer:
                values = onnx.numpy_helper.to_array(tensor) + 1
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
            onnx.save(proto, str(settings.model))
            return super().__call__(settings, env, progress)

    with pytest.raises(AccuracyError, match="computes something else"):
        optimize(Linear().eval(), torch.randn(2, 4), engine=Wrong())
