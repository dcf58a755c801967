"""Which of ONNX Runtime's optimisations makes a model wrong, found with a CPU that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from support.contracts.small_models import SmallModel
from support.engine.models import make_model

from aoe.device.registry import default_device
from aoe.errors import RunError
from aoe.execute.messages import ModelPart, WorkerSetup
from aoe.execute.unusual_inputs import right_optimizations
from aoe.om.file import MODEL
from aoe.ort.inputs import MADE_UP
from aoe.ort.optimizers import ALL_OPTIMIZATIONS, Optimizations, mark, optimizations_of
from aoe.ort.sessions import session_options
from aoe.ort.thread_pools import ThreadPool

Array = np.ndarray[Any, Any]


Change = Callable[[Array], Array]


class _WrongCpu:
    """The CPU, whose sessions add 1 to all results of models one made-up rewriter works on."""

    def __init__(self, rewriter: str, change: Change = lambda result: result + 1) -> None:
        self._rewriter = rewriter
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(default_device(), name)

    def open_session(self, model: bytes | Path, options: ort.SessionOptions) -> Any:
        session = default_device().open_session(model, options)
        is_optimized = (
            options.graph_optimization_level != ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        )
        if not is_optimized or self._rewriter in optimizations_of(session).left_out:
            return session
        return _Changed(session, self._change)


class _Changed:
    def __init__(self, session: ort.InferenceSession, change: Change) -> None:
        self._session = session
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, *arguments: Any) -> list[Array]:
        return [self._change(result) for result in self._session.run(*arguments)]


def _part(folder: Path, model: onnx.ModelProto) -> ModelPart:
    (folder / MODEL).write_bytes(model.SerializeToString())
    return ModelPart(model=folder / MODEL)


def _found(
    folder: Path, device: Any, model: onnx.ModelProto, most_s: float = 10.0
) -> tuple[Optimizations, str]:
    setup = WorkerSetup(
        device=device,
        target=default_device().describe(1),
        compiler=("false",),
        directory=folder,
        pool=ThreadPool.OWN,
    )
    return right_optimizations(setup, _part(folder, model), MADE_UP, most_s, 1e-3)


def _plain() -> onnx.ModelProto:
    return make_model([helper.make_node("Sigmoid", ["x"], ["y"])], {"x": [3, 40]}, ["y"])


@pytest.mark.parametrize("rewriter", ["QDQSelectorActionTransformer", "ConstantFolding"])
def test_rewriter_to_blame_is_the_only_one_left_out(tmp_path: Path, rewriter: str) -> None:
    found, how_far = _found(tmp_path, _WrongCpu(rewriter), _plain())
    assert found == Optimizations(left_out=(rewriter,))
    assert how_far.startswith("result 0: 120 of 120 values differ beyond rounding")
    assert [file.name for file in tmp_path.iterdir()] == [MODEL]


def test_results_of_another_shape_are_wrong_too(tmp_path: Path) -> None:
    device = _WrongCpu("ConstantFolding", lambda result: result[1:])
    found, how_far = _found(tmp_path, device, _plain())
    assert found == Optimizations(left_out=("ConstantFolding",))
    assert "shape (2, 40) instead of (3, 40)" in how_far


def test_text_is_compared_as_it_is(tmp_path: Path) -> None:
    small = SmallModel()
    place = small.op("ArgMax", small.input(3, 2), axis=1, keepdims=0)
    model = small.model(small.op("Gather", small.constant(np.array(["cat", "dog"], object)), place))
    assert _found(tmp_path, default_device(), model) == (ALL_OPTIMIZATIONS, "")
    device = _WrongCpu("ConstantFolding", lambda result: result + "s")
    assert _found(tmp_path, device, model)[0] == Optimizations(left_out=("ConstantFolding",))


def test_right_form_has_all_optimizations(tmp_path: Path) -> None:
    assert _found(tmp_path, default_device(), _plain()) == (ALL_OPTIMIZATIONS, "")


def test_marked_models_are_opened_without_what_makes_them_wrong(tmp_path: Path) -> None:
    model, known = _plain(), Optimizations(left_out=("ConstantFolding",))
    mark(model, known)
    part = _part(tmp_path, model)
    for source in (part.model, model.SerializeToString()):
        options = session_options(threads=1, optimize=True)
        assert optimizations_of(default_device().open_session(source, options)) == known
        assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    plain = session_options(threads=1, optimize=False)
    assert (
        optimizations_of(default_device().open_session(model.SerializeToString(), plain))
        == ALL_OPTIMIZATIONS
    )


def test_form_that_cannot_be_run_in_time_is_not_called_wrong(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no results in time"):
        _found(tmp_path, default_device(), _plain(), most_s=-1.0)
