"""`aoe.InferenceSession`: called as ONNX Runtime's, computed by what is tuned."""

from __future__ import annotations

import gc
import os
import queue
import threading
import warnings
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from support.engine.models import chain_model, make_model
from support.engine.online import Script, adding, rows, sum_of_two, tuned_file, write_tuned
from support.faulty_system import FaultySystem

import aoe
from aoe.device.registry import default_device
from aoe.errors import ModelImportError, OptionError, OutputError
from aoe.online.conversions import Conversion
from aoe.online.work import Stage

PLAIN, FOUND, TUNED = 1.0, 2.0, 3.0


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep converted models apart from those of other tests, and the built-in bank out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AOE_BUILT_IN_BANK", "off")


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for tuned models."""
    return tmp_path_factory.mktemp("tuned")


@pytest.fixture
def both(files: Path) -> Script:
    """Return a script with an answer from the bank and a better one from tuning."""
    found, tuned = tuned_file(files, FOUND), tuned_file(files, TUNED)
    return Script(lambda asked: found if asked.lookup_only else tuned)


def _value(session: Any, count: int = 1) -> float:
    (result,) = session.run(None, rows(count))
    assert result.shape == (count, 4) and len(set(result.flat)) == 1
    return float(result[0, 0])


def _work_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "aoe-online"]


# ---- what the bank has ----


def test_hits_of_the_bank_compute_from_the_first_call_on(both: Script, bank: Path) -> None:
    session = both.session_class()(adding(PLAIN), bank=bank)
    assert _value(session) == FOUND
    (asked,) = both.asked
    assert asked.lookup_only and asked.shapes == {"x": (1, 4)}
    (form,) = session.forms
    assert (form.stage, form.kernels, form.speedup) == (Stage.LOOKED_UP, 1, 1.5)
    assert not _work_threads()


def test_form_of_a_quantised_model_computes_without_a_kernel(files: Path, bank: Path) -> None:
    own = adding(FOUND)
    file = write_tuned(files / "form.om", tuned=own, untuned=own, written_as="as uint8")
    session = Script(lambda asked: file).session_class()(adding(PLAIN), bank=bank)
    assert _value(session) == FOUND
    (form,) = session.forms
    assert (form.kernels, form.written_as, form.is_tuned) == (0, "as uint8", True)


def test_empty_bank_is_not_asked(both: Script, tmp_path: Path) -> None:
    session = both.session_class()(adding(PLAIN), bank=tmp_path / "new")
    assert _value(session) == PLAIN
    assert not both.asked and session.forms[0].kernels == 0


def test_bank_that_may_not_be_written_is_looked_up(
    both: Script, bank: Path, system: FaultySystem
) -> None:
    system.replace("os.access", lambda path, mode: not mode & os.W_OK)
    assert _value(both.session_class()(adding(PLAIN), bank=bank)) == FOUND
    with pytest.raises(OutputError, match=r"may not be used .*read, write and search"):
        both.session_class()(adding(PLAIN), bank=bank, tune=True)


def test_second_start_takes_what_the_first_one_made(both: Script, bank: Path) -> None:
    for _ in range(2):
        assert _value(both.session_class()(adding(PLAIN), bank=bank)) == FOUND
    assert len(both.asked) == 1


def test_second_start_knows_that_there_was_nothing(bank: Path) -> None:
    script = Script(lambda asked: None)
    for _ in range(2):
        assert _value(script.session_class()(adding(PLAIN), bank=bank)) == PLAIN
    assert len(script.asked) == 1


@pytest.mark.parametrize("change", ["bank", "model", "threads", "quarantine"])
def test_what_changes_the_answer_is_looked_up_anew(both: Script, bank: Path, change: str) -> None:
    both.session_class()(adding(PLAIN), bank=bank)
    model, options = adding(PLAIN), ort.SessionOptions()
    if change == "bank":
        next(bank.rglob("records.json")).write_text("{} ")
    elif change == "quarantine":
        (bank / ".aoebank").mkdir()
        (bank / ".aoebank" / "quarantine.jsonl").write_text("")
    elif change == "model":
        model = adding(PLAIN + 1)
    else:
        options.intra_op_num_threads = 1
        if default_device().describe().core_num == 1:
            pytest.skip("one core is all there is")
    both.session_class()(model, options, bank=bank)
    assert len(both.asked) == 2


def test_damaged_kept_model_is_made_again(both: Script, bank: Path, tmp_path: Path) -> None:
    both.session_class()(adding(PLAIN), bank=bank)
    (kept,) = (tmp_path / "cache").rglob("*.om")
    kept.write_bytes(b"no zip")
    assert _value(both.session_class()(adding(PLAIN), bank=bank)) == FOUND
    assert len(both.asked) == 2


def test_nothing_is_kept_without_a_cache(
    both: Script, bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOE_CACHE_SIZE", "0")
    for _ in range(2):
        assert _value(both.session_class()(adding(PLAIN), bank=bank)) == FOUND
    assert len(both.asked) == 2
    assert not list((tmp_path / "cache").rglob("*.om"))


def test_look_up_that_fails_is_said_and_leaves_the_model_as_it_is(bank: Path) -> None:
    script = Script(lambda asked: "no compiler")
    with pytest.warns(aoe.FallbackWarning, match="bank cannot be used for it: no compiler"):
        session = script.session_class()(adding(PLAIN), bank=bank)
    assert _value(session) == PLAIN
    assert (session.forms[0].stage, session.forms[0].problem) == (Stage.FAILED, "no compiler")


# ---- tuning in the background ----


def test_better_model_is_swapped_in_between_two_calls(both: Script, bank: Path) -> None:
    both.held = True
    with both.session_class()(adding(PLAIN), bank=bank, tune=True, trials=3) as session:
        assert _value(session) == FOUND
        assert not session.wait_for_tuning(0.02)
        both.go.set()
        assert session.wait_for_tuning(60)
        assert _value(session) == TUNED
        assert [form.stage for form in session.forms] == [Stage.TUNED]
    assert [asked.lookup_only for asked in both.asked] == [True, False]
    assert (both.asked[1].tuning_time_limit_s, both.asked[1].trials) == (600.0, 3)
    assert both.asked[0].tuning_time_limit_s is None


def test_session_that_asks_for_none_tunes_nothing(both: Script, bank: Path) -> None:
    session = both.session_class()(adding(PLAIN), bank=bank)
    assert session.wait_for_tuning(0)
    assert [asked.lookup_only for asked in both.asked] == [True]


@pytest.mark.parametrize(("answer", "stage"), [(None, Stage.TUNED), ("busy", Stage.FAILED)])
def test_tuning_that_finds_nothing_leaves_what_there_was(
    files: Path, bank: Path, answer: str | None, stage: Stage
) -> None:
    found = tuned_file(files, FOUND)
    script = Script(lambda asked: found if asked.lookup_only else answer)
    session = script.session_class()(adding(PLAIN), bank=bank, tune=True)
    assert session.wait_for_tuning(60)
    assert _value(session) == FOUND
    (form,) = session.forms
    assert (form.stage, form.kernels, form.problem) == (stage, 1, answer or "")


def test_next_start_has_what_was_tuned(both: Script, bank: Path) -> None:
    session = both.session_class()(adding(PLAIN), bank=bank, tune=True)
    assert session.wait_for_tuning(60)
    assert _value(both.session_class()(adding(PLAIN), bank=bank)) == TUNED
    assert len(both.asked) == 2


@pytest.mark.slow
def test_many_threads_call_while_models_are_swapped(files: Path, bank: Path) -> None:
    numbers = iter([*range(3, 13)])
    made = [tuned_file(files, float(number)) for number in range(3, 13)]
    script = Script(lambda asked: made[next(numbers) - 3])
    session = script.session_class()(adding(PLAIN), bank=bank)
    done = threading.Event()

    def call() -> int:
        seen = []
        while not done.is_set():
            seen.append(_value(session))
        assert seen == sorted(seen)  # nobody goes back to an older model
        return len(seen)

    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(call) for _ in range(4)]
        work = session.background.work
        try:
            for _ in range(9):
                assert work.tune(session.static_form).kernels == 1
        finally:  # or the calls never end
            done.set()
        assert all(one.result() > 0 for one in calls)
    assert _value(session) == 12.0


def test_closing_ends_what_goes_on(both: Script, bank: Path) -> None:
    both.held = True
    session = both.session_class()(adding(PLAIN), bank=bank, tune=True)
    both.wait_for(2)
    session.close()
    session.close()
    assert both.stopped == 1 and not _work_threads()
    assert _value(session) == FOUND
    assert session.wait_for_tuning(0)


def test_session_that_is_forgotten_ends_what_goes_on(both: Script, bank: Path) -> None:
    both.held = True
    session = both.session_class()(adding(PLAIN), bank=bank, tune=True)
    both.wait_for(2)
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None and both.stopped == 1 and not _work_threads()


# ---- open shapes ----


@pytest.fixture
def by_rows(files: Path) -> Script:
    """Return a script that tunes for any number of rows."""

    def answer(asked: Conversion) -> Path | None:
        (count, _) = asked.shapes["x"]
        name = files / f"{count}_{asked.lookup_only}"
        name.mkdir()
        return None if asked.lookup_only else tuned_file(name, TUNED, count)

    return Script(answer)


def test_shapes_are_tuned_when_they_were_seen(by_rows: Script, bank: Path) -> None:
    session = by_rows.session_class()(adding(PLAIN, "n"), bank=bank, tune=True)
    assert not by_rows.asked
    assert _value(session, 2) == PLAIN
    assert session.wait_for_tuning(60)
    assert (_value(session, 2), _value(session, 5)) == (TUNED, PLAIN)
    assert session.wait_for_tuning(60)
    assert _value(session, 5) == TUNED
    assert [form.shapes for form in session.forms] == [{"x": (2, 4)}, {"x": (5, 4)}]


def test_all_shapes_of_a_range_are_computed_by_one_model(files: Path, bank: Path) -> None:
    open_model = tuned_file(files, TUNED, "n")
    script = Script(lambda asked: None if asked.lookup_only else open_model)
    model, text = adding(PLAIN, "n"), "x:2~9,4"
    session = script.session_class()(model, bank=bank, tune=True, input_shape=text)
    assert _value(session, 2) == PLAIN
    assert session.wait_for_tuning(60)
    assert [_value(session, count) for count in (2, 3, 9)] == [TUNED] * 3
    assert {str(asked.shapes) for asked in script.asked} == {"{'x': ('2~9', 4)}"}
    assert [form.shapes for form in session.forms] == [{"x": ("2~9", 4)}]
    assert _value(session, 10) == PLAIN  # outside of the range a shape is one as ever
    assert session.wait_for_tuning(60)
    assert script.asked[-1].shapes == {"x": (10, 4)}


def test_calls_of_a_range_whose_names_disagree_are_of_a_shape_of_their_own(
    files: Path, bank: Path
) -> None:
    tuned = write_tuned(files / "sum.om", tuned=sum_of_two(TUNED), untuned=sum_of_two(PLAIN))
    script = Script(lambda asked: None if asked.lookup_only else tuned)
    text = "x:1~9,4;m:1~9,4"
    given: dict[str, Any] = {"bank": bank, "tune": True, "most_forms": 1, "input_shape": text}
    session = script.session_class()(sum_of_two(PLAIN), **given)

    def ran(rows: int, masks: int) -> float:
        feed = {"x": np.zeros((rows, 4), np.float32), "m": np.zeros((masks, 4), np.float32)}
        return float(session.run(None, feed)[0][0, 0])

    assert ran(2, 2) == PLAIN
    assert session.wait_for_tuning(60)
    assert [ran(3, 3), ran(3, 1), ran(1, 3), ran(3, 3)] == [TUNED, PLAIN, PLAIN, TUNED]


def test_a_range_may_leave_out_inputs_of_one_shape(files: Path, bank: Path) -> None:
    def model(number: float) -> onnx.ModelProto:
        found = sum_of_two(number)
        found.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 1
        return found

    tuned = write_tuned(files / "sum.om", tuned=model(TUNED), untuned=model(PLAIN))
    script = Script(lambda asked: None if asked.lookup_only else tuned)
    given: dict[str, Any] = {"bank": bank, "tune": True, "input_shape": "x:1~9,4"}
    session = script.session_class()(model(PLAIN), **given)
    feed = {"x": np.zeros((3, 4), np.float32), "m": np.zeros((1, 4), np.float32)}
    assert session.run(None, feed)[0][0, 0] == PLAIN
    assert session.wait_for_tuning(60)
    assert session.run(None, {**feed, "x": feed["x"][:2]})[0][0, 0] == TUNED
    assert script.asked[-1].shapes == {"x": ("1~9", 4), "m": (1, 4)}


@pytest.mark.parametrize(
    "text", ["x:1,4", "x:3~1,4", "z:1~8,4", "x:1~8", "x:1~8,5", "x:1~8,1~4", "x:1~8,4;z:1~8"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="input_shape"):
        aoe.InferenceSession(adding(PLAIN, "n"), input_shape=text)


def test_no_more_shapes_than_asked_for_are_tuned(by_rows: Script, bank: Path) -> None:
    session = by_rows.session_class()(adding(PLAIN, "n"), bank=bank, tune=True, most_forms=1)
    for count in (2, 3, 2, 3):
        _value(session, count)
        assert session.wait_for_tuning(60)
    assert [form.stage for form in session.forms] == [Stage.TUNED, Stage.SEEN]


def test_shape_called_most_often_comes_first(by_rows: Script, bank: Path) -> None:
    by_rows.held = True
    session = by_rows.session_class()(adding(PLAIN, "n"), bank=bank, tune=True)
    _value(session, 2)
    by_rows.wait_for(2)  # looked up, and being tuned
    for count in (3, 5, 5, 5):
        _value(session, count)
    by_rows.go.set()
    assert session.wait_for_tuning(60)
    assert [asked.shapes["x"][0] for asked in by_rows.asked] == [2, 2, 5, 3, 5, 3]


def test_no_shapes_are_looked_up_where_none_are_wanted(by_rows: Script, bank: Path) -> None:
    session = by_rows.session_class()(adding(PLAIN), bank=bank, tune=True, most_forms=0)
    assert _value(session) == PLAIN and not by_rows.asked and session.forms == ()


# ---- as ONNX Runtime's ----


@pytest.fixture
def found(both: Script, bank: Path) -> Iterator[Any]:
    """Return a session that computes with what the bank has."""
    with both.session_class()(adding(PLAIN), bank=bank) as session:
        yield session


def test_session_is_one_of_onnx_runtime_and_describes_the_model(found: Any) -> None:
    plain = ort.InferenceSession(adding(PLAIN).SerializeToString())
    assert isinstance(found, ort.InferenceSession)
    for method in ("get_inputs", "get_outputs"):
        ours, theirs = getattr(found, method)(), getattr(plain, method)()
        assert [(v.name, v.type, v.shape) for v in ours] == [
            (v.name, v.type, v.shape) for v in theirs
        ]
    assert found.get_modelmeta().graph_name == plain.get_modelmeta().graph_name
    assert found.get_providers() == [default_device().provider()]


def test_every_way_of_calling_uses_what_was_found(found: Any) -> None:
    values = {"x": ort.OrtValue.ortvalue_from_numpy(rows()["x"])}
    assert found.run_with_ort_values(["y"], values)[0].numpy()[0, 0] == FOUND
    binding = found.io_binding()
    binding.bind_cpu_input("x", rows()["x"])
    binding.bind_output("y")
    found.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0][0, 0] == FOUND
    (y,), data, error = _called_back(found, ["y"], rows())
    assert (y[0, 0], data, error) == (FOUND, "data", "")


def _called_back(session: ort.InferenceSession, outputs: list[str], feed: Any) -> tuple[Any, ...]:
    """Return what a session calls back with."""
    results: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    session.run_async(outputs, feed, lambda *said: results.put(said), "data")
    return results.get(timeout=60)


def test_session_of_one_thread_calls_back_as_one_with_a_pool_does(both: Script, bank: Path) -> None:
    for threads, root in product((1, 2), (bank, bank.parent / "none")):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        session = both.session_class()(adding(PLAIN), options, bank=root)
        (y,), data, error = _called_back(session, ["y"], rows())
        assert (y[0, 0], data, error) == (FOUND if root == bank else PLAIN, "data", "")
        outputs, _, error = _called_back(session, ["y"], {"x": rows()["x"].astype(np.float64)})
        assert outputs == [] and "data type" in error
        with pytest.raises(ValueError, match="missing from input feed"):
            session.run_async(["y"], {}, print, None)


def test_binding_made_before_a_swap_goes_on(both: Script, bank: Path) -> None:
    both.held = True
    session = both.session_class()(adding(PLAIN), bank=bank, tune=True)
    binding = session.io_binding()
    binding.bind_cpu_input("x", rows()["x"])
    binding.bind_output("y")
    both.go.set()
    assert session.wait_for_tuning(60)
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0][0, 0] == FOUND
    other = both.session_class()(adding(PLAIN), bank=bank)
    with pytest.raises(ValueError, match="session that created it"):
        other.run_with_iobinding(binding)


@pytest.mark.parametrize(
    "feed",
    [
        {"x": np.zeros((2, 4), np.float32)},
        {"x": np.zeros((1, 4), np.float64)},
        {"z": np.zeros((1, 4), np.float32)},
        {},
        {"x": "text"},
    ],
    ids=["shape", "type", "name", "nothing", "no array"],
)
def test_wrong_calls_fail_as_they_do_in_onnx_runtime(found: Any, feed: dict[str, Any]) -> None:
    plain = ort.InferenceSession(adding(PLAIN).SerializeToString())
    with pytest.raises(Exception) as theirs:
        plain.run(None, feed)
    with pytest.raises(type(theirs.value)) as ours:
        found.run(None, feed)
    assert str(ours.value) == str(theirs.value)


def test_wrong_name_of_a_result_is_the_callers_fault(found: Any) -> None:
    with pytest.raises(InvalidArgument, match="Invalid output name:q"):
        found.run(["q"], rows())
    assert _value(found) == FOUND


def test_tuned_model_that_fails_is_given_up(found: Any) -> None:
    class Broken:
        def run(self, *given: Any) -> Any:
            raise RuntimeError("kernel")

    found.substitutes.put(found.static_form, Broken())
    with pytest.warns(aoe.FallbackWarning, match="the tuned one failed: kernel"):
        assert _value(found) == PLAIN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _value(found) == PLAIN


def test_options_of_the_session_reach_the_tuned_model(
    both: Script, bank: Path, tmp_path: Path
) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = both.session_class()(adding(PLAIN), options, bank=bank)
    (tuned,) = session.substitutes.all()
    entry = tuned.get_session_options().get_session_config_entry("session.intra_op.allow_spinning")
    assert (tuned.get_session_options().intra_op_num_threads, entry) == (1, "0")
    assert both.asked[0].core_num == 1
    _value(session)
    assert Path(session.end_profiling()).is_file()
    assert len(list(tmp_path.glob("profile_tuned*.json"))) == 1


def test_file_with_its_weights_outside_is_taken(both: Script, bank: Path, tmp_path: Path) -> None:
    import onnx

    file = tmp_path / "net.onnx"
    onnx.save_model(
        adding(PLAIN), str(file), save_as_external_data=True, location="w.bin", size_threshold=0
    )
    both.session_class()(str(file), bank=bank)
    assert both.asked[0].model == str(file)
    both.session_class()(file, bank=bank)
    (tmp_path / "w.bin").write_bytes(np.full(4, 9, np.float32).tobytes())
    both.session_class()(file, bank=bank)
    assert len(both.asked) == 2


def test_file_is_found_wherever_the_script_has_gone_and_weights_lie_beside_its_link(
    by_rows: Script, bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("blobs", "net", "elsewhere"):
        (tmp_path / name).mkdir()
    onnx.save_model(adding(PLAIN, "n"), str(tmp_path / "blobs" / "5eed"))
    (tmp_path / "net" / "net.onnx").symlink_to("../blobs/5eed")
    monkeypatch.chdir(tmp_path / "net")
    session = by_rows.session_class()("net.onnx", bank=bank)
    monkeypatch.chdir(tmp_path / "elsewhere")
    _value(session, 2)
    assert session.wait_for_tuning(60)
    assert [asked.model for asked in by_rows.asked] == [str(tmp_path / "net" / "net.onnx")]


# ---- bad input ----


@pytest.mark.parametrize("providers", [["CUDAExecutionProvider"], [("CUDAExecutionProvider", {})]])
def test_other_devices_are_refused(providers: list[Any]) -> None:
    with pytest.raises(OptionError, match=r"only the CPU is tuned \(got CUDAExecutionProvider"):
        aoe.InferenceSession(adding(PLAIN), providers=providers)


def test_providers_cannot_be_changed(found: Any) -> None:
    found.set_providers([default_device().provider()])
    with pytest.raises(OptionError, match="only the CPU is tuned"):
        found.set_providers(["CUDAExecutionProvider"])
    assert _value(found) == FOUND


def test_misspelt_option_is_named_with_the_closest_one() -> None:
    told = r"unknown option \(got trails, expected one of bank, "
    with pytest.raises(OptionError, match=told) as refused:
        aoe.InferenceSession(adding(PLAIN), trails=3)
    assert refused.value.hint == "did you mean trials?"


@pytest.mark.parametrize(
    "given",
    [
        {"most_forms": -1},
        {"most_forms": "b"},
        {"trials": 1.5},
        {"tuning_time_limit_s": "soon"},
        {"input_shape": 3},
    ],
)
def test_numbers_that_cannot_be_meant_are_refused_by_their_names(given: Any) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(given))}: (out of|not a|no range)"):
        aoe.InferenceSession(adding(PLAIN), **given)


def test_tuned_model_is_sent_to_load(files: Path) -> None:
    with pytest.raises(OptionError, match="a tuned model") as refused:
        aoe.InferenceSession(tuned_file(files, FOUND))
    assert refused.value.hint == "aoe.load() runs tuned models"


def test_model_of_a_newer_opset_is_computed_in_an_older_one(tmp_path: Path) -> None:
    """ONNX Runtime has no kernel of Swish in models of an opset above 24."""
    model = chain_model(["Swish"], (2, 8), opset=28)
    file = tmp_path / "new.onnx"
    onnx.save(model, str(file))
    x = np.linspace(-4, 4, 16, dtype=np.float32).reshape(2, 8)
    for given in (file, str(file), model, model.SerializeToString()):
        (result,) = aoe.InferenceSession(given, bank=tmp_path, most_forms=0).run(None, {"x": x})
        np.testing.assert_allclose(result, x / (1 + np.exp(-x)), rtol=1e-5)
    node = onnx.helper.make_node("SwiGLU", ["x", "z"], ["y"])
    model = make_model([node], dict.fromkeys("xz", (2, 8)), ["y"], opset=28, ir_version=13)
    with pytest.raises(ModelImportError, match="SwiGLU of version 28"):
        aoe.InferenceSession(model, bank=tmp_path)


def test_broken_models_fail_as_they_do_in_onnx_runtime(tmp_path: Path) -> None:
    for model in (str(tmp_path / "none.onnx"), b"no model", 3):
        with pytest.raises(Exception) as theirs:
            ort.InferenceSession(model)
        with pytest.raises(type(theirs.value)):
            aoe.InferenceSession(model)
