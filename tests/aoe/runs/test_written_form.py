"""A model is tuned in the form that is faster: as it was imported, or in the one beside it."""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from support.contracts.small_models import SmallModel
from support.engine.fakes import RecordingProgress
from support.engine.quantized import LARGE, biased, feeds, int8_activations, int8_model, residual
from support.engine.scripted_runs import ScriptedCpu, ScriptedRuns

import aoe
import aoebank
from aoe import TuneResult
from aoe.errors import RunError
from aoe.execute.messages import ModelPart
from aoe.measurement import Outcome
from aoe.om.file import FALLBACK, MODEL, read_manifest
from aoe.runs.model_mode import ModelTuning
from aoe.runs.written_form import other_forms


def models_of(file: Path, folder: Path) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return the imported and the tuned model of an `.om` file."""
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return onnx.load(str(folder / FALLBACK)), onnx.load(str(folder / MODEL))


def mode_of(found: TuneResult) -> ModelTuning[Any]:
    mode = found.modes[-1]
    assert isinstance(mode, ModelTuning)
    return mode


def parallel(folder: Path) -> Path:
    """Write two blocks as RepVGG is trained, and branches of two filters a channel."""
    model = SmallModel()
    x = model.op("Relu", model.conv(model.input(1, 8, 24, 24), 8, 8))
    for _ in range(2):
        total = model.op("Add", model.conv(x, 8, 8, 3), model.batch_norm(x, 8))
        x = model.op("Relu", model.op("Add", model.conv(x, 8, 8), total))
    wide = model.op("Add", *(model.conv(x, 8, 16, kernel, group=8) for kernel in (5, 3)))
    x = model.conv(model.op("Relu", wide), 16, 8)
    file = folder / "net.onnx"
    onnx.save(model.model(x), str(file))
    return file


def mixed() -> onnx.ModelProto:
    """Return a branch without a convolution beside groups of 8, behind two filters a channel."""
    model = SmallModel()
    x = model.input(1, 16, 24, 24)
    wide = model.conv(x, 16, 32, 3, group=16)
    made = model.op("Relu", model.conv(wide, 32, 16, pads=[0] * 4))
    return model.model(model.op("Add", model.conv(made, 16, 16, 3, group=2), made))


def open_image(file: Path) -> None:
    """Give the image of a model any height and width."""
    model = onnx.load(str(file))
    for value in (*model.graph.input, *model.graph.output):
        for dim, name in zip(value.type.tensor_type.shape.dim[2:], "hw", strict=False):
            dim.dim_param = name
    del model.graph.value_info[:]
    onnx.save(model, str(file))


def convolutions(model: onnx.ModelProto) -> int:
    return sum(node.op_type in ("Conv", "FusedConv") for node in model.graph.node)


def scripted(gain: float) -> ScriptedRuns:
    """Return runs in which a model without int8 activations is so many times as fast."""

    def us(part: ModelPart) -> float:
        return gain if int8_activations(onnx.load(str(part.model))) else 1.0

    return ScriptedRuns(model=lambda baseline, tuned: us(baseline) / us(tuned))


@pytest.mark.parametrize(
    "options",
    [
        {"job_type": "opat"},
        {"job_type": "sgat"},
        {"job_type": "sgat,opat"},
        {"job_type": "opat", "lookup_only": True},
        {"job_type": "sgat", "lookup_only": True},
        {"job_type": "opat", "input_shape": "x:1,4,16~48,16~48"},
        {"job_type": "opat", "target_metric": "throughput"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_faster_form_is_the_tuned_model_of_every_mode(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """No kernel and no rewrite is needed for a gain that is proven over the imported model."""
    file = int8_model(tmp_path)
    if "input_shape" in options:
        open_image(file)
    (tmp_path / "bank").mkdir()
    given = {"bank": tmp_path / "bank", "trials": 2, "cache_mode": "disable"}
    runs = scripted(2.5)
    runs.candidate = lambda schedule: 0.5
    found = runs.tune(file, output=tmp_path / "out", **given, **options)
    mode = mode_of(found)
    assert found.om_file is not None
    imported, tuned = models_of(found.om_file, tmp_path / "parts")
    assert (int8_activations(imported) > 4, int8_activations(tuned)) == (True, 0)
    assert "int8 activations written as uint8" in mode.summary()["written_as"]
    assert not mode.summary()["unchanged"]
    assert read_manifest(found.om_file).written_as == "int8 activations written as uint8"
    if "lookup_only" not in options:
        assert 2.3 < found.speedup < 2.7
        assert mode.written_as is not None and mode.written_as.speedup is not None
        again = runs.tune(file, output=tmp_path / "again", **given, **options)
        assert 2.3 < again.speedup < 2.7


def test_functions_in_the_place_of_operators_are_a_form(tmp_path: Path) -> None:
    """Also of a model of ONNX's newest opset, which ONNX Runtime does not compute as it is."""
    model = SmallModel()
    x = model.conv(model.input(1, 8, 24, 24), 8, 8)
    proto = model.model(model.op("Swish", x))
    proto.opset_import[0].version, proto.ir_version = 28, 13
    onnx.save(proto, str(tmp_path / "net.onnx"))
    (tmp_path / "bank").mkdir()

    def us(part: ModelPart) -> float:
        return 1.0 + any(one.op_type == "Swish" for one in onnx.load(str(part.model)).graph.node)

    runs = ScriptedRuns(
        model=lambda baseline, tuned: us(baseline) / us(tuned), candidate=lambda schedule: 0.5
    )
    found = runs.tune(tmp_path / "net.onnx", bank=tmp_path / "bank", output=tmp_path / "out")
    assert found.om_file is not None
    imported, tuned = models_of(found.om_file, tmp_path / "parts")
    assert [entry.version for entry in imported.opset_import if not entry.domain] == [24]
    assert ["Swish" in {n.op_type for n in m.graph.node} for m in (imported, tuned)] == [
        True,
        False,
    ]
    assert mode_of(found).summary()["written_as"] == "the function of Swish (1): 2x"
    assert 1.9 < found.speedup < 2.1
    x0 = np.random.default_rng(0).standard_normal((1, 8, 24, 24)).astype(np.float32)
    (loaded,), (served,) = (
        session.run(None, {session.get_inputs()[0].name: x0})
        for session in (aoe.load(found.om_file), aoe.InferenceSession(tmp_path / "net.onnx"))
    )
    np.testing.assert_allclose(loaded, served, rtol=1e-4, atol=1e-5)


def test_imported_form_stays_where_it_is_faster(tmp_path: Path) -> None:
    file = int8_model(tmp_path)
    (tmp_path / "bank").mkdir()
    runs = scripted(0.8)
    runs.candidate = lambda schedule: 0.5
    found = runs.tune(file, bank=tmp_path / "bank", output=tmp_path / "out", trials=2)
    assert found.om_file is not None
    imported, tuned = models_of(found.om_file, tmp_path / "parts")
    assert int8_activations(tuned) == int8_activations(imported) > 4
    said = mode_of(found).summary()["written_as"]
    assert said == "the model stays as it is; int8 activations written as uint8: 0.8x"
    assert (found.speedup, mode_of(found).summary()["unchanged"]) == (1.0, True)


@pytest.mark.parametrize(("gain", "later"), [(2.5, 1.1), (0.8, 1.25)])
def test_later_run_takes_the_form_of_the_bank_unmeasured(
    gain: float, later: float, tmp_path: Path
) -> None:
    file = int8_model(tmp_path)
    (tmp_path / "bank").mkdir()
    given = {"bank": tmp_path / "bank", "output": tmp_path / "out", "trials": 2}

    def tuned(by_then: float, **options: Any) -> str:
        runs = scripted(by_then)
        runs.candidate = lambda schedule: 0.5
        told: list[str] = []
        found = runs.tune(file, **given, progress=lambda event: told.append(event.text), **options)
        is_compared = any("comparing the model with another form" in text for text in told)
        return f"{mode_of(found).summary()['written_as']}{', compared' if is_compared else ''}"

    words = f"int8 activations written as uint8: {gain:.3g}x"
    kept = "" if gain > 1 else "the model stays as it is; "
    assert tuned(gain) == f"{kept}{words}, compared"
    assert tuned(later) == f"{kept}{words}, as in the bank"
    assert tuned(1 / gain, lookup_only=True) == f"{kept}{words}, as in the bank"
    found = aoebank.validate(tmp_path / "bank").findings
    assert {one.code for one in found} <= {"AB401"}  # a choice has no time, which is a note
    assert tuned(1.25, repeat_tune=True).endswith("uint8: 1.25x, compared")


@pytest.mark.parametrize("accept_busy", [False, True])
def test_busy_machine_decides_nothing_about_a_form_for_later_runs(
    accept_busy: bool, tmp_path: Path
) -> None:
    file = int8_model(tmp_path)
    (tmp_path / "bank").mkdir()
    given = {"bank": tmp_path / "bank", "output": tmp_path / "out", "trials": 2}
    runs = scripted(2.5)
    runs.candidate = lambda schedule: 0.5
    share = 0.5

    def open_runner(*how: Any) -> Any:
        runner = runs.open_runner(*how)
        runner.given_share = share
        return runner

    runs.parts["open_runner"] = open_runner
    told: list[str] = []
    found = runs.tune(
        file, accept_busy=accept_busy, progress=lambda event: told.append(event.text), **given
    )
    words = "int8 activations written as uint8"
    undecided = f"the model stays as it is; {words}: not measured"
    said = mode_of(found).summary()["written_as"]
    assert said == (f"{words}: 2.5x" if accept_busy else undecided)
    is_told = any(
        text.startswith("not decided, the machine was busy") and text.endswith("form stays")
        for text in told
    )
    assert is_told is not accept_busy
    share = 1.0
    again = mode_of(runs.tune(file, **given)).summary()["written_as"]
    assert again == f"{words}: 2.5x{', as in the bank' if accept_busy else ''}"


@pytest.mark.parametrize(
    "options",
    [
        {"job_type": "opat"},
        {"job_type": "sgat"},
        {"job_type": "sgat,opat"},
        {"job_type": "opat", "input_shape": "x0:1,8,16~24,16~24"},
    ],
    ids=lambda options: " ".join(options.values()),
)
def test_form_that_is_slower_in_the_end_gives_way(options: dict[str, str], tmp_path: Path) -> None:
    file = parallel(tmp_path)
    (tmp_path / "bank").mkdir()
    if "input_shape" in options:
        open_image(file)

    def model(baseline: ModelPart, tuned: ModelPart) -> float:
        if tuned.model.name == "form.onnx":  # where its memory came to lie, say
            return 1.05
        counts = [convolutions(onnx.load(str(part.model))) for part in (baseline, tuned)]
        return 0.97 if counts[0] > counts[1] else 1.0

    runs = ScriptedRuns(model=model, candidate=lambda schedule: 0.5)
    found = runs.tune(file, bank=tmp_path / "bank", output=tmp_path / "out", trials=2, **options)
    assert found.om_file is not None
    imported, tuned = models_of(found.om_file, tmp_path / "parts")
    assert convolutions(imported) == convolutions(tuned) == 8
    summary = mode_of(found).summary()
    assert (summary["unchanged"], summary["speedup"]) == (True, 1)
    assert summary["written_as"].startswith("the model stays as it is; parallel-branches-merged")
    assert read_manifest(found.om_file).written_as == ""


def test_form_that_computes_something_else_is_not_taken(tmp_path: Path) -> None:
    file = parallel(tmp_path)
    (tmp_path / "bank").mkdir()

    def model(baseline: ModelPart, tuned: ModelPart) -> Any:
        parts = [convolutions(onnx.load(str(part.model))) for part in (baseline, tuned)]
        return Outcome.CORRECTNESS if parts[0] != parts[1] else 1.0

    runs = ScriptedRuns(model=model, candidate=lambda schedule: 0.5)
    told: list[str] = []
    found = runs.tune(
        file,
        bank=tmp_path / "bank",
        output=tmp_path / "out",
        trials=2,
        progress=lambda event: told.append(event.text),
    )
    assert mode_of(found).summary()["unchanged"]
    assert mode_of(found).summary()["written_as"].endswith("not measured")
    expected = "the other form computes something else, 2 instead of 1 at [0]"
    assert f"{expected}: the imported form stays" in told


def test_imported_form_stays_where_the_other_cannot_be_run(tmp_path: Path) -> None:
    file = int8_model(tmp_path)
    (tmp_path / "bank").mkdir()

    def model(baseline: ModelPart, tuned: ModelPart) -> Any:
        is_other = int8_activations(onnx.load(str(tuned.model))) == 0
        return RunError("model", "no kernel for it") if is_other else 1.0

    runs = ScriptedRuns(model=model, candidate=lambda schedule: 0.5)
    found = runs.tune(file, bank=tmp_path / "bank", output=tmp_path / "out", trials=2)
    assert mode_of(found).summary()["unchanged"]
    assert "not measured" in mode_of(found).summary()["written_as"]


def test_float_models_have_no_other_form(tmp_path: Path) -> None:
    network = onnx.shape_inference.infer_shapes(residual("Relu"))
    onnx.save(network, str(tmp_path / "net.onnx"))
    (tmp_path / "bank").mkdir()
    runs = ScriptedRuns(model=lambda baseline, tuned: 1.0, candidate=lambda schedule: 0.5)
    found = runs.tune(tmp_path / "net.onnx", bank=tmp_path / "bank", output=tmp_path, trials=2)
    assert "written_as" not in mode_of(found).summary()


@pytest.mark.parametrize("gain", [1.5, 0.9])
@pytest.mark.parametrize(
    "options",
    [
        {"job_type": "opat"},
        {"job_type": "sgat"},
        {"job_type": "sgat,opat"},
        {"job_type": "opat", "input_shape": "x0:1,8,16~24,16~24"},
    ],
    ids=lambda options: " ".join(options.values()),
)
def test_parallel_branches_are_one_convolution_where_that_is_faster(
    options: dict[str, str], gain: float, tmp_path: Path
) -> None:
    file = parallel(tmp_path)
    (tmp_path / "bank").mkdir()
    if "input_shape" in options:
        open_image(file)

    def us(part: ModelPart) -> float:
        return gain if convolutions(onnx.load(str(part.model))) == 8 else 1.0

    runs = ScriptedRuns(model=lambda baseline, tuned: us(baseline) / us(tuned))
    runs.candidate = lambda schedule: 0.5
    given = {"bank": tmp_path / "bank", "trials": 2, **options}
    found = runs.tune(file, output=tmp_path / "out", **given)
    assert found.om_file is not None
    imported, tuned = models_of(found.om_file, tmp_path / "parts")
    assert (convolutions(imported), convolutions(tuned)) == (8, 6 if gain > 1 else 8)
    words = "parallel-branches-merged at 3 places, channel-filters-apart at 1 place"
    assert read_manifest(found.om_file).written_as == (words if gain > 1 else "")
    kept = "" if gain > 1 else "the model stays as it is; "
    assert mode_of(found).summary()["written_as"] == f"{kept}{words}: {gain:.3g}x"


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({"strict_fp32": True}, {"channel-filters-apart": 1}),
        ({"precision_mode": "allow_mix_precision_int8"}, {"channel-filters-apart": 1}),
    ],
    ids=lambda options: " ".join(options),
)
def test_branches_stay_where_infinities_or_ranges_of_weights_matter(
    options: dict[str, Any], rules: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "bank").mkdir()
    runs = ScriptedRuns(model=lambda baseline, tuned: 1.0, candidate=lambda schedule: 0.5)
    given: dict[str, Any] = {"bank": tmp_path / "bank", "output": tmp_path, "trials": 2}
    onnx.save(mixed(), str(tmp_path / "net.onnx"))
    form = mode_of(runs.tune(tmp_path / "net.onnx", **given, **options)).written_as
    assert form is not None
    of_any_block = set(form.rules) - {"groups-to-whole-blocks"}  # of 16 channels alone
    assert {rule: form.rules[rule] for rule in of_any_block} == rules


def test_records_are_placed_in_the_forms_of_every_precision(tmp_path: Path) -> None:
    """As `aoe verify --model` does, which does not know in which precision a record was made."""
    forms = list(other_forms(mixed(), ScriptedCpu(), tmp_path, threads=1))
    rules = [set(form.rules) - {"groups-to-whole-blocks"} for form in forms]  # of 16 channels alone
    assert rules[0] == {"parallel-branches-merged", "channel-filters-apart"}
    assert rules[1:] == [{"channel-filters-apart"}] * len(rules[1:]) != []
    assert len({form.what for form in forms}) == len(forms)


def test_parallel_branches_are_merged_for_real(tmp_path: Path) -> None:
    file = parallel(tmp_path)
    (tmp_path / "bank").mkdir()
    given = {"bank": tmp_path / "bank", "aicore_num": 1, "accept_busy": True}
    found = aoe.tune(file, output=tmp_path / "out", trials=1, tuning_time_limit=8, **given)
    form = mode_of(found).written_as
    assert form is not None and found.om_file is not None
    assert form.rules == {"parallel-branches-merged": 3, "channel-filters-apart": 1}
    feed = {"x0": np.random.default_rng(3).standard_normal((1, 8, 24, 24)).astype(np.float32)}
    (result,) = aoe.load(found.om_file).run(None, feed)
    (expected,) = ort.InferenceSession(str(file)).run(None, feed)
    assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()
    if form.proto is not None:
        assert "parallel-branches-merged at 3 places" in read_manifest(found.om_file).written_as


def test_bias_that_onnx_runtime_misreads_is_computed_right(tmp_path: Path) -> None:
    """However fast the other form is: what it computes is not what the model says."""
    model = onnx.shape_inference.infer_shapes(biased("Gemm", 0.5))
    onnx.save(model, str(tmp_path / "net.onnx"))
    (tmp_path / "bank").mkdir()
    runs = ScriptedRuns(model=lambda baseline, tuned: 0.9, candidate=lambda schedule: 0.5)
    progress = RecordingProgress()
    found = runs.tune(
        tmp_path / "net.onnx",
        bank=tmp_path / "bank",
        output=tmp_path,
        trials=2,
        progress=progress,
    )
    assert any("in another scale than it has" in one for one in progress.texts("warn"))
    assert (
        mode_of(found).summary()["written_as"]
        == "bias-in-scale-of-products at 1 place: not measured"
    )
    feed = {"x": np.random.default_rng(2).standard_normal((6, 8)).astype(np.float32)}
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    exact = ort.InferenceSession(model.SerializeToString(), plain).run(None, feed)[0]
    assert found.om_file is not None
    tuned = aoe.load(found.om_file).run(None, feed)[0]
    assert np.rint(np.abs(tuned - exact) / 0.4).max() <= 1


def test_quantised_network_is_tuned_to_integers_for_real(tmp_path: Path) -> None:
    """On whatever CPU: where int8 is the faster form, the model stays as it is."""
    file = int8_model(tmp_path)
    (tmp_path / "bank").mkdir()
    found = aoe.tune(
        file,
        bank=tmp_path / "bank",
        output=tmp_path / "out",
        aicore_num=1,
        trials=2,
        tuning_time_limit=6,
        accept_busy=True,
    )
    form = mode_of(found).written_as
    assert form is not None and found.om_file is not None
    _, tuned = models_of(found.om_file, tmp_path / "parts")
    assert (int8_activations(tuned) == 0) == (form.proto is not None)
    if form.proto is not None:
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        ort.InferenceSession(form.proto.SerializeToString(), options)
        kinds = Counter(
            node.op_type for node in onnx.load(str(tmp_path / "optimized.onnx")).graph.node
        )
        assert (kinds["QLinearConv"], kinds["Conv"]) == (5, 0)
    model, before = aoe.load(found.om_file), ort.InferenceSession(str(file))
    for feed in feeds(LARGE):
        (result,), (expected,) = model.run(None, feed), before.run(None, feed)
        assert np.abs(result - expected).max() <= 0.1 * np.abs(expected).max()


def test_tables_are_joined_for_real(tmp_path: Path) -> None:
    model = SmallModel()
    numbers, rows = model.input(8, 6, dtype=TensorProto.INT64), []
    for at in range(6):
        column = model.op("Gather", numbers, model.constant(np.array(at)), axis=1)
        row = model.op("Gather", model.weight(50 + at, 16), column)
        rows.append(model.op("Unsqueeze", row, model.constant([1])))
    wide = model.op("Reshape", model.op("Concat", *rows, axis=1), model.constant([8, 96]))
    made = model.op("Relu", model.op("MatMul", wide, model.weight(96, 8)))
    file = tmp_path / "net.onnx"
    onnx.save(model.model(made), str(file))
    (tmp_path / "bank").mkdir()
    given = {"bank": tmp_path / "bank", "aicore_num": 1, "accept_busy": True}
    found = aoe.tune(file, output=tmp_path / "out", trials=1, tuning_time_limit=8, **given)
    form = mode_of(found).written_as
    assert form is not None and found.om_file is not None
    assert form.rules == {"tables-joined": 1}
    feed = {"x0": np.random.default_rng(3).integers(-50, 50, (8, 6))}
    (result,) = aoe.load(found.om_file).run(None, feed)
    (expected,) = ort.InferenceSession(str(file)).run(None, feed)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
