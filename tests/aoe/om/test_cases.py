"""One `.om` with several shapes: weights once, each shape its kernels, others the fall-back."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from support.commands import aoe_exit_code
from support.engine.cpu import open_session
from support.engine.offline import open_conv_net, write_joined

import aoe
from aoe.device.toolchain import Toolchain
from aoe.entry.protocol import ModelSource
from aoe.errors import OfflineModelError, RunError
from aoe.om.cases import case_manifest, find_case, join_cases
from aoe.om.file import WEIGHTS, Manifest, read_manifest, write_offline_model
from aoe.om.loading import open_offline_model
from aoe.ort.sessions import session_options
from aoe.profiling.subject import open_subject
from aoe.target import Target


@dataclass(frozen=True)
class Joined:
    """Two batches of `conv_net` in one file, and the files it was made of."""

    file: Path
    files: tuple[Path, ...]
    manifest: Manifest


@pytest.fixture(scope="module")
def joined(
    tmp_path_factory: pytest.TempPathFactory, target: Target, toolchain: Toolchain
) -> Joined:
    """Return a file for batches of 1 and 3; that of 3 has no kernels."""
    folder = tmp_path_factory.mktemp("joined")
    file, files = write_joined(folder, target, toolchain)
    return Joined(file, files, read_manifest(file))


def _images(batch: int) -> dict[str, Any]:
    rng = np.random.default_rng(batch)
    return {"image": rng.standard_normal((batch, 3, 12, 12)).astype(np.float32)}


def _reference(feed: dict[str, Any]) -> Any:
    options = session_options(threads=1, optimize=True)
    session = open_session(open_conv_net().proto.SerializeToString(), options)
    return session.run(None, feed)[0]


@contextmanager
def _no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_manifest_tells_what_there_is_for_each_shape(joined: Joined) -> None:
    one, three = joined.manifest.cases
    assert (one.shapes, three.shapes) == ({"image": (1, 3, 12, 12)}, {"image": (3, 3, 12, 12)})
    assert (one.model_sha256, three.model_sha256) == ("1" * 64, "3" * 64)
    assert one.kernels and three.kernels and not joined.manifest.kernels
    assert joined.manifest.kernel_count == len(one.kernels) + len(three.kernels)
    alone = case_manifest(joined.manifest, 1)
    assert (alone.kernels, alone.cases) == (three.kernels, ())


def test_weights_are_stored_once(joined: Joined) -> None:
    def weights(file: Path) -> int:
        with zipfile.ZipFile(file) as archive:
            return archive.getinfo(WEIGHTS).file_size

    assert weights(joined.file) == max(map(weights, joined.files))


def test_the_same_files_make_the_same_bytes(joined: Joined, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    again = tmp_path / "again.om"
    join_cases(again, joined.files, open_conv_net(), tmp_path / "scratch")
    assert again.read_bytes() == joined.file.read_bytes()


@pytest.mark.parametrize("batch", [1, 3])
def test_each_shape_runs_its_own_kernels(joined: Joined, batch: int) -> None:
    with _no_warning():
        model = aoe.load(joined.file)
        feed = _images(batch)
        found = model.run(None, feed)[0]
        session = model.session_for({"image": feed["image"].shape})
        values = {name: ort.OrtValue.ortvalue_from_numpy(one) for name, one in feed.items()}
        assert np.array_equal(model.run(None, values)[0], found)
    np.testing.assert_allclose(found, _reference(feed), rtol=1e-4, atol=1e-6)
    assert session.get_inputs()[0].shape == [batch, 3, 12, 12]
    assert session is not model.session and model.fallback_reason == ""


def test_another_shape_runs_untuned_and_says_so_once(joined: Joined) -> None:
    model = aoe.load(joined.file)
    feed = _images(2)
    with pytest.warns(aoe.FallbackWarning, match="image:2,3,12,12: tuned are image:1,3") as caught:
        found = model.run(None, feed)[0]
    assert caught[0].filename == __file__
    with _no_warning():
        model.run(None, feed)
    np.testing.assert_array_equal(found, _reference(feed))
    assert model.get_inputs()[0].shape == ["n", 3, 12, 12]


def test_threads_open_each_session_once(joined: Joined) -> None:
    model = aoe.load(joined.file)
    shapes = [{"image": (1 + 2 * (at % 2), 3, 12, 12)} for at in range(16)]
    with ThreadPoolExecutor(8) as pool:
        sessions = list(pool.map(model.session_for, shapes))
    assert len({id(session) for session in sessions}) == 2


def test_a_shape_whose_kernels_do_not_load_runs_untuned(joined: Joined) -> None:
    opened: list[object] = []

    def broken(options: object) -> None:
        opened.append(options)
        if len(opened) == 1:  # the tuned one comes first
            raise RunError("kernels_1.so", "kernel library not usable here")

    model, _ = open_offline_model(joined.file, threads=None, adjust=broken)
    feed = _images(1)
    with pytest.warns(aoe.FallbackWarning, match="kernel library not usable here"):
        found = model.run(None, feed)[0]
    np.testing.assert_array_equal(found, _reference(feed))


def test_another_cpu_runs_every_shape_untuned(joined: Joined, tmp_path: Path) -> None:
    with zipfile.ZipFile(joined.file) as archive:
        archive.extractall(tmp_path / "parts")
    file = tmp_path / "winged.om"
    manifest = replace(joined.manifest, cpu_features=("wings",))
    write_offline_model(file, tmp_path / "parts", manifest)
    with pytest.warns(aoe.FallbackWarning, match="this CPU lacks wings"):
        model = aoe.load(file)
    assert model.fallback_reason
    with _no_warning():
        model.run(None, _images(1))


def test_a_case_is_one_whose_inputs_all_fit(joined: Joined) -> None:
    assert find_case(joined.manifest, {"image": (3, 3, 12, 12)}) == 1
    assert find_case(joined.manifest, {"image": (3, 3, 12, 13)}) is None
    assert find_case(joined.manifest, {}) is None


def test_files_for_different_targets_are_not_joined(joined: Joined, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    with zipfile.ZipFile(joined.files[1]) as archive:
        archive.extractall(parts)
    other = tmp_path / "other.om"
    write_offline_model(other, parts, replace(read_manifest(joined.files[1]), core_num=64))
    (tmp_path / "scratch").mkdir()
    with pytest.raises(OfflineModelError, match="tuned for another target"):
        join_cases(
            tmp_path / "x.om", [joined.files[0], other], open_conv_net(), tmp_path / "scratch"
        )


def test_a_case_without_its_model_is_refused(joined: Joined, tmp_path: Path) -> None:
    file = tmp_path / "edited.om"
    with zipfile.ZipFile(joined.file) as source, zipfile.ZipFile(file, "w") as sink:
        value = json.loads(source.read("manifest.json"))
        del value["parts"]["model_2.onnx"]
        sink.writestr("manifest.json", json.dumps(value))
    with pytest.raises(OfflineModelError, match=r"/parts: 'model_2.onnx' is a required property"):
        read_manifest(file)


# ---- commands ----


def _aoe(*arguments: object) -> int:
    return aoe_exit_code(arguments)


def test_run_takes_the_case_of_the_array(
    joined: Joined, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "image.npy", _images(3)["image"])
    assert _aoe("run", joined.file, "--input", tmp_path / "image.npy", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["outputs"][0]["shape"] == [3, 10]


def test_run_makes_up_inputs_of_the_first_case(
    joined: Joined, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _aoe("run", joined.file, "--json") == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["shape"] == [1, 10]


def test_inspect_tells_of_every_shape(joined: Joined, capsys: pytest.CaptureFixture[str]) -> None:
    assert _aoe("inspect", joined.file) == 0
    told = capsys.readouterr().out
    assert "image:1,3,12,12" in told and "image:3,3,12,12" in told and "any other shape" in told
    assert _aoe("inspect", joined.file, "--json") == 0
    manifest = json.loads(capsys.readouterr().out)["manifest"]
    assert manifest["cases"][1]["shapes"] == {"image": [3, 3, 12, 12]}


def test_profile_takes_one_case(joined: Joined, tmp_path: Path) -> None:
    source = ModelSource(path=joined.file, shapes={"image": (3, 3, 12, 12)})
    subject = open_subject(source, None, tmp_path, threads=1)
    dims = subject.imported.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [3, 3, 12, 12] and subject.library is not None


def test_case_needs_every_input_to_fit() -> None:
    """What it is asked for are the shapes of cases alone."""
    shapes = [{"a": (1,), "b": (extent,)} for extent in (2, 3)]
    manifest = SimpleNamespace(cases=[SimpleNamespace(shapes=one) for one in shapes])
    assert [find_case(manifest, one) for one in shapes] == [0, 1]
    assert find_case(manifest, {"a": (1,), "b": (4,)}) is None
