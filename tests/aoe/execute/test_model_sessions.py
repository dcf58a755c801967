"""Sessions of two models that are compared: where both do not fit, one at a time."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime as ort
from support.contracts.small_models import SmallModel

from aoe.device.cpu.device import Cpu
from aoe.execute.messages import ModelPart, WorkerSetup
from aoe.execute.model_sessions import SessionsInTurns, node_times
from aoe.ort.inputs import ModelInputs
from aoe.ort.sessions import session_options
from aoe.ort.thread_pools import ThreadPool


@dataclass(frozen=True, slots=True)
class _LoadingAlone(Cpu):
    """The CPU; it fails where a model is loaded while another one still is."""

    opened: list[weakref.ref[ort.InferenceSession]] = field(default_factory=list)

    def open_session(
        self, model: bytes | Path, options: ort.SessionOptions
    ) -> ort.InferenceSession:
        assert not any(session() for session in self.opened), "the other one is still there"
        session = Cpu.open_session(self, model, session_options(threads=1, optimize=False))
        self.opened.append(weakref.ref(session))
        return session


def test_one_model_of_two_is_loaded_at_a_time(tmp_path: Path) -> None:
    small = SmallModel()
    model = tmp_path / "net.onnx"
    product = small.op("MatMul", small.input(8, 64), small.weight(64, 64))
    model.write_bytes(small.model(product).SerializeToString())
    device = _LoadingAlone()
    setup = WorkerSetup(device=device, target=device.describe(1), compiler=(), directory=tmp_path)
    turns = SessionsInTurns(setup, [ModelPart(model=model, is_large=True)] * 2, ModelInputs())
    _, first, _ = turns.first_run(0)
    _, second, _ = turns.first_run(1)
    assert np.array_equal(first[0][0], second[0][0])
    samplers = [turns.timer(side, repeats=2) for side in (0, 1)]
    assert samplers[1]() > 0
    assert len(device.opened) == 2, "whoever is loaded is not loaded again"
    assert samplers[0]() > 0
    assert len(device.opened) == 3


def test_nodes_of_two_models_are_timed_in_one_process(tmp_path: Path) -> None:
    parts = []
    for name in ("MatMul", "Relu"):
        small = SmallModel()
        read = small.input(8, 64)
        result = small.op(name, read, *([small.weight(64, 64)] if name == "MatMul" else []))
        proto = small.model(result)
        proto.graph.node[0].name = name.lower()
        (tmp_path / f"{name}.onnx").write_bytes(proto.SerializeToString())
        parts.append(ModelPart(model=tmp_path / f"{name}.onnx", optimize=False))
    device = Cpu()
    setup = WorkerSetup(
        device=device,
        target=device.describe(1),
        compiler=("cc",),
        directory=tmp_path,
        pool=ThreadPool.OWN,
    )
    product, relu = node_times(setup, parts, ModelInputs(), most_s=0.1)
    assert product.keys() == {"matmul"} and relu.keys() == {"relu"}
    assert not [*tmp_path.glob("ort_profile*")]
