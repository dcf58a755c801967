"""`aoe.torch.optimize` does once what it needs, and tunes what a plain export has to be tuned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest

torch = pytest.importorskip("torch")

from support.engine.offline import regions_of, view_of  # noqa: E402
from support.engine.untuned import UntunedEngine  # noqa: E402
from support.optimized_modules import optimize  # noqa: E402
from torch import nn  # noqa: E402

from aoe.entry.onnx_file import load_onnx  # noqa: E402
from aoe.target import Target  # noqa: E402
from aoe.torch.modules.onnx_translation import quiet_exporter  # noqa: E402
from aoe.tuner.mode import TuneSettings  # noqa: E402
from aoe.tuner.progress import Progress  # noqa: E402
from aoe.workload import workload_to_json  # noqa: E402


class Block(nn.Module):
    """A block of ConvNeXt: what took minutes where its ONNX file takes one."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.widen = nn.Linear(channels, 4 * channels)
        self.narrow = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, value: Any) -> Any:
        rows = self.norm(self.mix(value).permute(0, 2, 3, 1))
        rows = self.narrow(nn.functional.gelu(self.widen(rows))) * self.scale
        return value + rows.permute(0, 3, 1, 2)


@pytest.fixture
def module() -> nn.Module:
    """Return a small ConvNeXt."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), Block(), Block()).eval()


@pytest.fixture
def image() -> Any:
    """Return what it is called with."""
    return torch.randn(1, 3, 32, 32)


def _counted(patch: pytest.MonkeyPatch, holder: Any, name: str, counts: Counter[str]) -> None:
    real: Callable[..., Any] = getattr(holder, name)

    @wraps(real)
    def call(*given: Any, **named: Any) -> Any:
        counts[name] += 1
        return real(*given, **named)

    patch.setattr(holder, name, call)


def test_module_is_exported_and_its_model_loaded_once(
    module: nn.Module, image: Any, engine: UntunedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: Counter[str] = Counter()
    _counted(monkeypatch, torch.export, "export", exports)
    translations: Counter[str] = Counter()
    _counted(monkeypatch, torch.onnx, "export", translations)
    others: Counter[str] = Counter()
    _counted(monkeypatch, ort, "InferenceSession", others)
    _counted(monkeypatch, onnx, "save", others)
    calls: list[int] = []
    module[1].register_forward_hook(lambda *_: calls.append(1))
    optimize(module, image, engine=engine)
    assert (exports["export"], translations["export"]) == (1, 1)
    assert others == {"InferenceSession": 1, "save": 1}
    assert len(calls) == 2, "traced once, and computed once to be compared with"
    assert len(engine.asked) == 1


def _workloads(file: Path, scratch: Path, target: Target) -> Counter[str]:
    scratch.mkdir()
    regions = regions_of(view_of(load_onnx(file, {}).proto, scratch, target))
    return Counter(json.dumps(workload_to_json(region.workload)) for region in regions)


@pytest.mark.slow
def test_what_is_tuned_is_what_a_plain_export_has(
    module: nn.Module,
    image: Any,
    tmp_path: Path,
    target: Target,
) -> None:
    fake = UntunedEngine()

    def kept(settings: TuneSettings, env: Mapping[str, str], progress: Progress) -> Path:
        (tmp_path / "ours.onnx").write_bytes(Path(str(settings.model)).read_bytes())
        return fake(settings, env, progress)

    optimize(module, image, engine=kept)
    with torch.no_grad(), quiet_exporter():
        plain = torch.onnx.export(module, (image,), dynamo=True, verbose=False).model_proto
    onnx.save(plain, tmp_path / "plain.onnx")
    ours, theirs = (
        _workloads(tmp_path / f"{name}.onnx", tmp_path / name, target) for name in ("ours", "plain")
    )
    assert ours == theirs and sum(ours.values()) > 4
