"""An engine that tunes nothing: it packs the model as it is, without measuring or compiling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from aoe.graph.weights import WeightStore
from aoe.om.file import FALLBACK, MODEL, WEIGHTS, write_offline_model
from aoe.tuner.mode import TuneSettings
from aoe.tuner.progress import Progress
from support.engine.offline import make_manifest


class UntunedEngine:
    """Stands in for `aoe.torch.modules.optimization.run_engine`.

    Attributes:
        asked: Settings of every run, in order.
        environments: Environment variables of every run.
    """

    def __init__(self) -> None:
        self.asked: list[TuneSettings] = []
        self.environments: list[Mapping[str, str]] = []

    def __call__(self, settings: TuneSettings, env: Mapping[str, str], progress: Progress) -> Path:
        """Write an `.om` file without kernels."""
        self.asked.append(settings)
        self.environments.append(env)
        assert settings.output is not None
        settings.output.mkdir(parents=True, exist_ok=True)
        parts = settings.output / "parts"
        parts.mkdir()
        proto = onnx.load(str(settings.model))
        with WeightStore(parts / WEIGHTS) as store:
            for name in (MODEL, FALLBACK):
                (parts / name).write_bytes(store.externalize(proto).SerializeToString())
        file = settings.output / f"{settings.model.stem}_tune.om"
        write_offline_model(file, parts, make_manifest(core_num=1))
        return file
