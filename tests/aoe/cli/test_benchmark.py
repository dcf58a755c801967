"""`aoe benchmark`: which models it compares."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support.engine.offline import write_joined

from aoe.cli.benchmark import model_part
from aoe.device.toolchain import Toolchain
from aoe.errors import OptionError
from aoe.om.file import FALLBACK
from aoe.target import Target


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory, target: Target, toolchain: Toolchain) -> Path:
    """Return a tuned model for batches of 1 and 3."""
    return write_joined(tmp_path_factory.mktemp("joined"), target, toolchain)[0]


def test_benchmark_takes_one_case_and_its_untuned_model(joined: Path, tmp_path: Path) -> None:
    part = model_part(joined, tmp_path, "image:3,3,12,12")
    assert part.library is not None and not part.optimize
    untuned = onnx.load(tmp_path / FALLBACK, load_external_data=False)
    dims = untuned.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [3, 3, 12, 12]


def test_benchmark_refuses_a_shape_there_is_not(joined: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="has no kernels for these shapes"):
        model_part(joined, tmp_path, "image:2,3,12,12")
