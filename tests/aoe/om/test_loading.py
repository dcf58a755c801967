"""`aoe.load`: the tuned model where it fits, the untuned one where it does not."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.commands import aoe_exit_code
from support.engine.cpu import open_session
from support.engine.models import conv_net
from support.engine.online import sum_of_two, write_tuned
from support.temp_folder import temp_folder

import aoe
from aoe.device.registry import default_device
from aoe.errors import AoeError, OfflineModelError, OptionError, OutputError
from aoe.om.cache import PartSteps, prune
from aoe.om.file import (
    FALLBACK,
    LIBRARY,
    MODEL,
    WEIGHTS,
    Manifest,
    unpack_part,
    write_offline_model,
)
from aoe.om.loading import OfflineModel, open_offline_model, unfit_reason
from aoe.ort.sessions import random_feed, session_options


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty cache, and make it the process's."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    with temp_folder(tmp_path / "scratch"):
        yield folder


@pytest.fixture(scope="module")
def expected() -> tuple[dict[str, Any], Any]:
    """Return inputs, and what the untuned network makes of them."""
    options = session_options(threads=1, optimize=True)
    session = open_session(conv_net().SerializeToString(), options)
    feed = random_feed(session, 11)
    return feed, session.run(None, feed)[0]


Expected = tuple[dict[str, Any], Any]
Damage = Callable[[Path], object]


def _damaged(tuned_net: Any, folder: Path, damage: Damage, **changes: Any) -> Path:
    """Return an `.om` whose parts were changed before they were packed."""
    parts = tuned_net.copy_parts(folder / "parts")
    damage(parts)
    file = folder / "damaged.om"
    manifest: Manifest = replace(tuned_net.manifest, **changes)
    write_offline_model(file, parts, manifest)
    return file


def _overwritten(file: Path, part: str, tuned_net: Any) -> None:
    """Damage the bytes of a part inside a packed file."""
    content = (tuned_net.parts / part).read_bytes()
    data = file.read_bytes()
    assert content[-64:] in data
    file.write_bytes(data.replace(content[-64:], bytes(64)[:-1] + b"\1"))


def _left_in(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def _assert_tuned(model: OfflineModel, expected: Expected) -> None:
    feed, reference = expected
    assert model.fallback_reason == ""
    np.testing.assert_allclose(model.run(None, feed)[0], reference, rtol=1e-4, atol=1e-6)


def test_tuned_model_is_loaded_and_computes_the_same(
    tuned_net: Any, cache: Path, expected: Expected
) -> None:
    model = aoe.load(tuned_net.file)
    assert model.manifest.kernels
    _assert_tuned(model, expected)


def test_model_has_the_shape_of_a_session(tuned_net: Any, cache: Path, expected: Expected) -> None:
    model = aoe.load(str(tuned_net.file), threads=1)
    assert [(i.name, i.shape) for i in model.get_inputs()] == [("image", [1, 3, 12, 12])]
    assert [o.name for o in model.get_outputs()] == ["scores"]
    feed, _ = expected
    assert np.array_equal(model.run(["scores"], feed)[0], model.run(None, feed, None)[0])


def test_threads_are_at_most_the_cores_there_are(tuned_net: Any, cache: Path) -> None:
    cores = default_device().describe().core_num
    with pytest.warns(UserWarning, match=f"{cores} threads instead of 1000") as caught:
        model = aoe.load(tuned_net.file, threads=1000)
    assert caught[0].filename == __file__
    assert model.session.get_session_options().intra_op_num_threads == cores


@pytest.mark.parametrize("given", [0, 1.5, "two", True])
def test_threads_that_are_no_number_of_threads_are_refused(
    tuned_net: Any, cache: Path, given: Any
) -> None:
    with pytest.raises(OptionError, match=r"threads: .*expected 1 or more"):
        aoe.load(tuned_net.file, threads=given)


def test_threads_may_be_a_text_as_elsewhere(tuned_net: Any, cache: Path) -> None:
    model = aoe.load(tuned_net.file, threads=cast(Any, "1"))
    assert model.session.get_session_options().intra_op_num_threads == 1


def test_second_load_uses_the_cache(tuned_net: Any, cache: Path, expected: Expected) -> None:
    aoe.load(tuned_net.file)
    (home,) = (cache / "aoe" / "om").iterdir()
    assert {file.name for file in home.iterdir()} > {MODEL, FALLBACK, WEIGHTS, LIBRARY}

    def unwanted(*_: object) -> None:
        raise AssertionError("unpacked again")

    steps = PartSteps(unpack=unwanted)
    model, _ = open_offline_model(tuned_net.file, threads=None, steps=steps)
    assert model.run(None, expected[0])


def test_cache_that_lost_a_file_is_not_trusted(
    tuned_net: Any, cache: Path, expected: Expected, tmp_path: Path
) -> None:
    aoe.load(tuned_net.file)
    (home,) = (cache / "aoe" / "om").iterdir()
    (home / WEIGHTS).unlink()
    model = aoe.load(tuned_net.file)
    _assert_tuned(model, expected)
    assert _left_in(tmp_path / "scratch") == []


def test_missing_cpu_feature_warns_and_gives_the_untuned_results(
    tuned_net: Any, cache: Path, tmp_path: Path, expected: Expected
) -> None:
    file = _damaged(tuned_net, tmp_path, lambda _: None, cpu_features=("sse4_1", "quantum"))
    with pytest.warns(aoe.FallbackWarning, match="this CPU lacks quantum") as caught:
        model = aoe.load(file)
    assert caught[0].filename == __file__
    assert model.fallback_reason == "this CPU lacks quantum"
    np.testing.assert_allclose(model.run(None, expected[0])[0], expected[1], rtol=1e-5)


def test_other_block_size_warns_and_runs_the_untuned_model(
    tuned_net: Any, cache: Path, tmp_path: Path, expected: Expected
) -> None:
    file = _damaged(tuned_net, tmp_path, lambda _: None, nchwc_block=3)
    with pytest.warns(aoe.FallbackWarning, match=r"blocks \d+ channels here, the model 3"):
        model = aoe.load(file)
    np.testing.assert_allclose(model.run(None, expected[0])[0], expected[1], rtol=1e-5)


def _no_library(parts: Path) -> None:
    (parts / LIBRARY).write_bytes(b"not a library")


def _broken_model(parts: Path) -> None:
    (parts / MODEL).write_bytes(b"not a model")


def _other_library(parts: Path) -> None:
    (parts / LIBRARY).unlink()


@pytest.mark.parametrize("damage", [_no_library, _broken_model])
def test_tuned_half_that_cannot_be_loaded_falls_back(
    tuned_net: Any, cache: Path, tmp_path: Path, expected: Expected, damage: Damage
) -> None:
    file = _damaged(tuned_net, tmp_path, damage)
    with pytest.warns(aoe.FallbackWarning, match="running the untuned model"):
        model = aoe.load(file)
    np.testing.assert_allclose(model.run(None, expected[0])[0], expected[1], rtol=1e-5)


def test_without_a_library_the_function_bodies_run(
    tuned_net: Any, cache: Path, tmp_path: Path, expected: Expected
) -> None:
    model = aoe.load(_damaged(tuned_net, tmp_path, _other_library))
    assert model.fallback_reason == ""
    np.testing.assert_allclose(model.run(None, expected[0])[0], expected[1], rtol=1e-5)


@pytest.mark.parametrize("part", [LIBRARY, MODEL])
def test_damaged_tuned_part_falls_back_and_is_never_cached(
    tuned_net: Any, cache: Path, tmp_path: Path, expected: Expected, part: str
) -> None:
    file = tmp_path / "copy.om"
    file.write_bytes(tuned_net.file.read_bytes())
    _overwritten(file, part, tuned_net)
    for _ in range(2):
        with pytest.warns(aoe.FallbackWarning, match=f"{part}: damaged part"):
            model = aoe.load(file)
        np.testing.assert_allclose(model.run(None, expected[0])[0], expected[1], rtol=1e-5)
    assert _left_in(cache) == []
    assert aoe.load(tuned_net.file).fallback_reason == ""


@pytest.mark.parametrize("part", [FALLBACK, WEIGHTS])
def test_damaged_untuned_part_is_an_error(
    tuned_net: Any, cache: Path, tmp_path: Path, part: str
) -> None:
    file = tmp_path / "copy.om"
    file.write_bytes(tuned_net.file.read_bytes())
    _overwritten(file, part, tuned_net)
    with pytest.raises(OfflineModelError, match=f"{part}: damaged part"):
        aoe.load(file)
    assert _left_in(tmp_path / "scratch") + _left_in(cache) == []


def test_sequence_of_tensors_of_several_shapes_is_taken(cache: Path, tmp_path: Path) -> None:
    given = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [None, 2])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])
    node = helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)
    proto = helper.make_model(
        helper.make_graph([node], "joined", [given], [result]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    file = write_tuned(tmp_path / "net.om", tuned=proto, untuned=proto, written_as="as it is")
    rows = [np.ones((count, 2), np.float32) for count in (1, 3)]
    assert aoe.load(file).run(None, {"s": rows})[0].shape == (4, 2)


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OfflineModelError, match="no such file"):
        aoe.load(tmp_path / "gone.om")


def test_cache_that_cannot_be_made_is_done_without_and_nothing_is_left(
    tuned_net: Any, cache: Path, tmp_path: Path, expected: Expected
) -> None:
    cache.write_text("a file where the cache should be")
    for _ in range(2):
        model = aoe.load(tuned_net.file)
        assert model.fallback_reason == ""
        assert _left_in(tmp_path / "scratch") == []
        np.testing.assert_allclose(
            model.run(None, expected[0])[0], expected[1], rtol=1e-4, atol=1e-6
        )


def test_cache_that_cannot_be_written_is_done_without(
    tuned_net: Any,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: Expected,
) -> None:
    def denied(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", denied)
    assert aoe.load(tuned_net.file).run(None, expected[0])
    assert _left_in(cache) + _left_in(tmp_path / "scratch") == []


def test_no_home_means_no_cache(
    tuned_net: Any, cache: Path, monkeypatch: pytest.MonkeyPatch, expected: Expected
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert aoe.load(tuned_net.file).run(None, expected[0])
    assert not cache.exists()


def _full(*_: object) -> None:
    raise OutputError("part", "cannot be written: No space left on device")


def test_full_disk_is_an_error_and_leaves_nothing(
    tuned_net: Any, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match="No space left"):
        open_offline_model(tuned_net.file, threads=None, steps=PartSteps(unpack=_full))
    assert _left_in(cache) + _left_in(tmp_path / "scratch") == []
    assert list((tmp_path / "scratch").iterdir()) == []


def test_full_disk_of_the_cache_is_got_round_by_the_scratch_folder(
    tuned_net: Any, cache: Path, tmp_path: Path, expected: Expected
) -> None:
    def full_in_the_cache(file: Path, manifest: Manifest, name: str, directory: Path) -> None:
        if cache in directory.parents:
            _full()
        unpack_part(file, manifest, name, directory)

    steps = PartSteps(unpack=full_in_the_cache)
    model, _ = open_offline_model(tuned_net.file, threads=None, steps=steps)
    _assert_tuned(model, expected)
    assert _left_in(cache) + _left_in(tmp_path / "scratch") == []


def test_cache_that_others_can_write_to_is_told_of_and_not_used(
    tuned_net: Any, cache: Path, tmp_path: Path, expected: Expected
) -> None:
    aoe.load(tuned_net.file)
    (home,) = (cache / "aoe" / "om").iterdir()
    (home / LIBRARY).write_bytes(b"forged")
    cache.chmod(0o777)
    with pytest.warns(UserWarning, match=f"{cache} can be written to by others") as caught:
        model = aoe.load(tuned_net.file)
    assert caught[0].filename == __file__
    _assert_tuned(model, expected)
    assert _left_in(tmp_path / "scratch") == []


def test_no_size_means_no_cache(
    tuned_net: Any, cache: Path, monkeypatch: pytest.MonkeyPatch, expected: Expected
) -> None:
    monkeypatch.setenv("AOE_CACHE_SIZE", "0")
    assert aoe.load(tuned_net.file).run(None, expected[0])
    assert not cache.exists()


@pytest.mark.parametrize("part", [WEIGHTS, LIBRARY, MODEL])
def test_part_that_changed_in_the_cache_is_unpacked_again(
    tuned_net: Any, cache: Path, expected: Expected, part: str
) -> None:
    del expected  # its session has no file of the cache open
    aoe.load(tuned_net.file)
    (home,) = (cache / "aoe" / "om").iterdir()
    content = bytearray((home / part).read_bytes())
    content[len(content) // 2] ^= 0xFF
    (home / part).write_bytes(content)
    model = aoe.load(tuned_net.file)
    assert model.fallback_reason == ""
    assert (home / part).read_bytes() == (tuned_net.parts / part).read_bytes()


def test_model_that_is_loaded_is_in_use_until_its_session_goes(tuned_net: Any, cache: Path) -> None:
    model = aoe.load(tuned_net.file)
    prune(cache / "aoe" / "om", 0)
    (home,) = (cache / "aoe" / "om").iterdir()
    session = model.session
    del model
    gc.collect()
    prune(cache / "aoe" / "om", 0)
    assert home.exists()
    del session
    gc.collect()
    prune(cache / "aoe" / "om", 0)
    assert not home.exists()


def test_model_that_cannot_be_loaded_is_not_in_use(tuned_net: Any, cache: Path) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        open_offline_model(tuned_net.file, threads=None, adjust=broken)
    gc.collect()
    prune(cache / "aoe" / "om", 0)
    assert _left_in(cache) == []


def test_concurrent_first_loads_all_succeed(
    tuned_net: Any, cache: Path, expected: Expected
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(6) as pool:
            models = list(pool.map(lambda _: aoe.load(tuned_net.file, threads=1), range(12)))
    results = [model.run(None, expected[0])[0] for model in models]
    assert all(np.array_equal(result, results[0]) for result in results)
    homes = list((cache / "aoe" / "om").iterdir())
    assert len(homes) == 1


_SCRIPT = """
import sys, aoe, numpy as np
model = aoe.load(sys.argv[1])
print(model.run(None, {"image": np.ones((1, 3, 12, 12), np.float32)})[0].shape)
"""


def test_another_process_loads_it_too(tuned_net: Any, cache: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _SCRIPT, str(tuned_net.file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=dict(os.environ),
    )
    assert done.stdout.strip() == "(1, 10)", done.stderr
    assert done.stderr == ""


def test_calls_whose_names_disagree_are_the_untuned_models(tmp_path: Path, cache: Path) -> None:
    tuned, untuned = sum_of_two(2.0), sum_of_two(1.0)
    text = "x:1~8,4;m:1~8,4"
    file = write_tuned(tmp_path / "sum.om", tuned=tuned, untuned=untuned, shape_range=text)
    model = aoe.load(file)

    def ran(rows: int, masks: int) -> float:
        feed = {"x": np.zeros((rows, 4), np.float32), "m": np.zeros((masks, 4), np.float32)}
        found = model.run(None, feed)[0]
        assert found.shape == (max(rows, masks), 4)
        return float(found[0, 0])

    assert [ran(3, 3), ran(1, 1), ran(99, 99)] == [2.0] * 3
    with pytest.warns(aoe.FallbackWarning, match="x:3,4;m:1,4: dimensions of one name") as caught:
        assert ran(3, 1) == 1.0
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [ran(1, 5), ran(5, 5)] == [1.0, 2.0]


def test_inspect_says_the_range_a_model_is_tuned_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text = sum_of_two(1.0), "x:1~8,4;m:1~8,4"
    file = write_tuned(tmp_path / "sum.om", tuned=model, untuned=model, shape_range=text)
    assert aoe_exit_code(["inspect", file]) == 0
    assert text in capsys.readouterr().out.splitlines()


def test_unfit_reason_is_empty_here(tuned_net: Any) -> None:
    assert unfit_reason(tuned_net.manifest) == ""


def test_public_names_are_there_and_others_are_not() -> None:
    results = {"OfflineModel", "ProgressEvent", "TuneResult", "VerifiedBank"}
    names = results | {"FallbackWarning", "InferenceSession", "load", "tune", "verify"}
    assert names == set(aoe.__all__)
    assert issubclass(aoe.FallbackWarning, UserWarning)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = aoe.nonsense
    assert issubclass(OfflineModelError, AoeError)
