"""`aoe benchmark`: which models it compares."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import onnx
import pytest
from support.engine.models import chain_model, save_model
from support.engine.offline import make_manifest, write_joined

from aoe.cli.benchmark import model_part
from aoe.device.toolchain import Toolchain
from aoe.errors import ModelImportError, OptionError
from aoe.om.file import FALLBACK, MODEL, WEIGHTS, write_offline_model
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


@pytest.mark.parametrize(
    ("shape", "is_right"), [("x:1,3", True), ("x:8,3", False), ("z:1,3", False)]
)
def test_benchmark_does_not_ignore_the_shape_of_a_file_of_one_shape(
    tmp_path: Path, shape: str, is_right: bool
) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for name in (MODEL, FALLBACK):
        save_model(chain_model(["Exp"], (1, 3)), parts / name)
    (parts / WEIGHTS).write_bytes(b"")
    write_offline_model(tmp_path / "net.om", parts, make_manifest())
    refused = nullcontext() if is_right else pytest.raises(ModelImportError, match="--input_shape")
    with refused:
        model_part(tmp_path / "net.om", tmp_path / "unpacked", shape)
