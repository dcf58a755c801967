"""Every path a user can take runs for real once in the everyday tier: one table, walked by a test.

A path is a command, a verb, a public function, an option that changes who does the work, or an
entry for models. Whatever is new in one of the registries has to be in the table, with the test
that runs it. "For real" is with the real engine, processes and files: a test with scripted times,
with parts of the product replaced, or with a look at the settings alone is none.
"""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import typer
from support import golden_harness
from support.aoe_contract import Runs
from support.commands import aoe_exit_code
from support.engine.models import save_model, slow_chain_net
from support.engine.scripted_runs import ScriptedRuns

import aoe
from aoe.cli.app import app, atc_main
from aoe.entry.registry import ENTRIES
from aoe.tuner.registry import KINDS
from aoebank.verbs import VERBS

ROOT = Path(__file__).resolve().parents[1]
HERE = "tests/test_every_path.py"
AOE, BANK = "tests/aoe", "tests/aoebank"
_SHAPE = "--input_shape=x:1,16,96,96"
LINES = {
    "aoe-atc": ("--model=plain.onnx --framework=5 --output={at}/plain", "Aoe process finished"),
    "aoe compile": (
        f"--model=net.onnx {_SHAPE} --op_bank_path=bank --output={{at}}/net",
        "From the bank: 1 kernel",
    ),
    "aoe verify": ("bank --dry-run", "nothing was written (--dry-run)"),
    "aoe plan": (f"net.onnx {_SHAPE}", "1 reused, 0 retuned, 0 new"),
    "aoe profile": ("out/net_tune.om --runs 1", "kinds, by time:"),
    "aoe advise": ("plain.onnx --most 1", " are lost; "),
    "aoe inspect": ("out/net_tune.om --html {at}/page.html", "wrote "),
}
"""Command lines that are run here in the folder of the tuned models all tests share, and what they
say where all went well."""
PATHS = {
    # the commands: the word by which a test runs it, and the test
    "aoe": ("--model=", f"{AOE}/cli/test_workers.py::test_worker_of_this_machine_tunes"),
    **dict.fromkeys(LINES, ("LINES", f"{HERE}::test_command_works")),
    "aoe doctor": (
        "doctor",
        f"{AOE}/cli/test_doctor.py::test_tables_name_every_setting_and_end_with_the_answer",
    ),
    "aoe watch": (
        "watch",
        f"{AOE}/cli/test_watch.py::test_terminal_shows_a_run_until_it_is_killed",
    ),
    "aoe demo": ("demo", f"{HERE}::test_demo_ends_with_what_to_do_next"),
    "aoe run": ("run", f"{AOE}/test_end_to_end.py::test_run_computes_random_inputs"),
    "aoe benchmark": (
        "benchmark",
        f"{AOE}/test_end_to_end.py::test_benchmark_compares_with_the_model_inside",
    ),
    "aoe sign": ("sign", f"{AOE}/om/test_signatures.py::test_signed_model_is_from_who_it_says"),
    # options that change who does the work
    "aoe --workers=N": (
        "--workers=1",
        f"{AOE}/cli/test_workers.py::test_worker_of_this_machine_tunes",
    ),
    "aoe --workers=ADDRESS": (
        "--workers=",
        f"{AOE}/cli/test_workers.py::test_run_ends_well_though_a_worker_and_then_the_scheduler_die",
    ),
    "aoe --input_shape=RANGE": (
        "input_shape",
        f"{AOE}/runs/ranges/test_run.py::test_every_shape_is_computed_within_the_range_and_beyond",
    ),
    "aoe --job_type=1": (
        "--job_type=1",
        "tests/test_for_aoe_users.py::test_row_is_true_of_the_program",
        "tests/support/aoe_contract.py",
    ),
    "aoe --job_type=2": (
        "tune",
        f"{AOE}/test_end_to_end.py::test_first_run_adds_what_is_better_and_counts_it",
    ),
    "aoe --job_type=4": (
        "tune_gradients",
        f"{AOE}/torch/ddp/test_gradients.py::test_better_grouping_is_added_used_and_found_again",
        "tests/support/ddp/tuned.py",
    ),
    "aoe --job_type=2,4 --script": (
        "--job_type=2,4",
        f"{AOE}/torch/scripts/test_running.py::test_operators_and_gradients_of_a_group_are_tuned_in_one_run",
    ),
    "AOE_MODE=2 python -m aoe.torch": (
        "AOE_MODE",
        f"{AOE}/torch/scripts/test_running.py::test_training_is_tuned_and_trains_the_same",
    ),
    # models of each kind
    "aoe --framework=0": (
        "--framework=0",
        f"{AOE}/entry/caffe/test_command.py::test_caffe_model_is_looked_up_and_run",
    ),
    "aoe --framework=3": (
        "aoe.tune",
        f"{AOE}/entry/tensorflow/test_model_files.py::test_keras_model_is_tuned",
    ),
    "aoe --framework=5": (
        "--framework=5",
        "tests/test_for_aoe_users.py::test_row_is_true_of_the_program",
        "tests/support/aoe_contract.py",
    ),
    "aoe --framework=None": (
        "set_aoe",
        f"{AOE}/torch/collecting/test_tuning.py::test_script_that_is_over_tunes_on_its_way_out",
    ),
    # public functions
    "aoe.InferenceSession": ("InferenceSession", f"{HERE}::test_session_tunes_beside_its_calls"),
    "aoe.load": (
        "aoe.load",
        f"{AOE}/test_end_to_end.py::test_tuned_model_computes_what_the_untuned_one_does",
    ),
    "aoe.tune": (
        "aoe.tune",
        f"{AOE}/runs/ranges/test_run.py::test_every_shape_is_computed_within_the_range_and_beyond",
    ),
    "aoe.verify": ("LINES", f"{HERE}::test_command_works"),  # of `aoe verify`
    "aoe.tensorflow.enable": (
        "enable",
        f"{AOE}/tensorflow/test_watching.py::test_real_script_leaves_a_report_for_each_graph_of_its_step",
    ),
    "aoe.torch.apply_gradient_strategy": (
        "apply_gradient_strategy",
        f"{AOE}/torch/ddp/test_gradients.py::test_model_is_left_with_the_grouping_and_a_new_one_gets_it_from_the_bank",
        "tests/support/ddp/tuned.py",
    ),
    "aoe.torch.fallbacks": (
        "fallbacks",
        f"{HERE}::test_module_is_served_from_the_bank_the_options_of_the_process_name",
    ),
    "aoe.torch.optimize": (
        "torch.optimize",
        f"{HERE}::test_module_is_served_from_the_bank_the_options_of_the_process_name",
    ),
    "aoe.torch.set_aoe": (
        "set_aoe",
        f"{AOE}/torch/collecting/test_tuning.py::test_script_that_is_over_tunes_on_its_way_out",
    ),
    "aoe.torch.set_option": (
        "set_option",
        f"{HERE}::test_module_is_served_from_the_bank_the_options_of_the_process_name",
    ),
    "aoe.torch.tune_gradients": (
        "tune_gradients",
        f"{AOE}/torch/ddp/test_gradients.py::test_better_grouping_is_added_used_and_found_again",
        "tests/support/ddp/tuned.py",
    ),
    "aoe.torch.TrainingModel": (
        "--job_type=4",
        f"{AOE}/torch/model_files/test_model_run.py::test_two_processes_train_it_and_the_bank_knows_it",
    ),
    "aoe.torch.TrainingScript": (
        "TrainingScript",
        f"{AOE}/torch/ddp/test_step_gate.py::test_script_left_alone_is_a_failure_only_of_what_would_have_ended_it",
    ),
    "torch.compile": (
        "torch.compile",
        f"{AOE}/torch/modules/test_backend.py::test_the_name_of_the_backend_reaches_the_engine",
    ),
    # verbs whose golden cases change nothing
    "aoebank revert": ('"revert"', f"{BANK}/history/test_command.py::test_story_of_a_bad_drop"),
    "aoebank schema import": (
        "schema",
        f"{BANK}/formats/runtime_kb/test_releases.py::test_headers_in_the_repository_of_banks_decide",
    ),
    "aoebank pack": (
        "pack",
        f"{BANK}/shipping/test_round_trip.py::test_commands_say_what_was_packed",
    ),
    "aoebank unpack": (
        "unpack",
        f"{BANK}/shipping/test_round_trip.py::test_commands_say_what_was_packed",
    ),
    "aoebank git install": (
        "install",
        f"{BANK}/git/test_install.py::test_install_registers_and_declares",
    ),
    "aoebank git uninstall": (
        "uninstall",
        f"{BANK}/git/test_install.py::test_uninstall_removes_a_file_that_held_nothing_else",
    ),
    "aoebank git check": (
        "check",
        f"{BANK}/git/test_check.py::test_installed_drivers_are_in_order",
    ),
    "aoebank git verify-merge": (
        "verify-merge",
        f"{BANK}/git/test_verify.py::test_merge_of_the_driver_is_in_order",
    ),
    "aoebank quarantine add": (
        '"quarantine"',
        f"{BANK}/history/test_command.py::test_quarantine_from_end_to_end",
    ),
}
"""The word by which a test takes a path, the test, and the file that takes it in its place."""
VALUES = {
    *("aoe.FallbackWarning", "aoe.OfflineModel", "aoe.ProgressEvent", "aoe.TuneResult"),
    *("aoe.VerifiedBank", "aoe.tensorflow.Watcher"),
}
"""Public names of what functions return, tell or raise."""


def _public(module: str) -> Iterator[str]:
    """Yield the public names of a module, which may need what is not installed."""
    text = Path(ROOT, module.replace(".", "/"), "__init__.py").read_text()
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                yield from (f"{module}.{ast.literal_eval(name)}" for name in names)


def _ways() -> Iterator[str]:
    """Yield every path there is, as the registries say."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from set(project["scripts"]) - {"aoebank"}  # which is nothing without a verb
    program = typer.main.get_command(app)
    yield from (f"aoe {name}" for name in program.list_commands(typer.Context(program)))
    yield from (f"aoebank {verb}" for verb in VERBS)
    yield from (f"aoe --job_type={job.number}" for job in KINDS)
    yield from (f"aoe --framework={number}" for number in ENTRIES)
    for module in ("aoe", "aoe.torch", "aoe.tensorflow"):
        yield from (name for name in _public(module) if name not in VALUES)


def _golden_verbs() -> Iterator[str]:
    """Yield the verbs of golden cases that do what they say, and end well or with an answer."""
    for case in golden_harness.cases("aoebank"):
        known = golden_harness.read_case("aoebank", case)
        words = shlex.split(known.command)
        words = words[words.index("aoebank") + 1 :]
        if known.expected.exit_code in (0, 1) and "--dry-run" not in words:
            yield f"aoebank {words[0]}"
            yield f"aoebank {' '.join(words[:2])}"


def test_every_path_is_run_by_a_test() -> None:
    ways = {*_ways()}
    assert sorted(ways - PATHS.keys() - {*_golden_verbs()}) == []
    assert not VALUES - {*_public("aoe"), *_public("aoe.torch"), *_public("aoe.tensorflow")}


@cache
def _definitions(file: Path) -> dict[str, tuple[ast.AST, str]]:
    """Return what a module defines: functions and constants, each with its source."""
    text = file.read_text()
    found = {}
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(targets=targets):
                names = [one.id for one in targets if isinstance(one, ast.Name)]
            case _:
                continue
        source = ast.get_source_segment(text, node) or ""
        found |= dict.fromkeys(names, (node, source))
    return found


def _made_of(file: Path, test: str) -> str:
    """Return the source of a test, of what it uses in its module, and of the fixtures beside it."""
    known, texts, left = _definitions(file), dict[str, str](), [test]
    while left:
        name = left.pop()
        if name in known and name not in texts:
            texts[name] = known[name][1]
            left += re.findall(r"\w+", texts[name])
    beside = file.with_name("conftest.py")
    return "\n".join([*texts.values(), beside.read_text() if beside.exists() else ""])


@pytest.mark.parametrize("path", PATHS)
def test_test_of_a_path_is_there_takes_it_and_is_in_the_everyday_tier(path: str) -> None:
    word, place, *helpers = PATHS[path]
    file, _, test = place.partition("::")
    known = _definitions(ROOT / file)
    assert test in known, place
    node = known[test][0]
    assert isinstance(node, ast.FunctionDef)
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    assert not [mark for mark in marks if mark.startswith(("pytest.mark.slow", "pytest.mark.gpu"))]
    assert "slow" not in known.get("pytestmark", (None, ""))[1]
    texts = [_made_of(ROOT / file, test), *(Path(ROOT, name).read_text() for name in helpers)]
    assert any(word in text for text in texts)


# ---- paths no other test of the everyday tier takes for real ----


@pytest.mark.parametrize("path", LINES)
def test_command_works(
    path: str,
    aoe_runs: Runs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TUNE_BANK_PATH", "bank")
    program, *command = path.split()
    line, answer = LINES[path]
    words = [*command, *shlex.split(line.format(at=tmp_path))]
    with contextlib.chdir(aoe_runs.root):
        if program == "aoe":
            code = aoe_exit_code(words)
        else:
            with pytest.raises(SystemExit) as ended:
                atc_main(words)
            code = int(ended.value.code or 0)
    out, err = capfd.readouterr()
    # a busy machine may show that a record no longer holds: that is an answer
    assert code in ((0, 1) if path == "aoe verify" else (0,)), err
    assert answer in out


def test_demo_ends_with_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its model, files and bank are real; times are scripted, for real ones take minutes."""
    monkeypatch.chdir(tmp_path)
    assert aoe_exit_code(["demo", "--output=demo"], ScriptedRuns().engine) == 0
    out = capfd.readouterr().out
    assert "Aoe process finished" in out
    assert re.search(r"\n  aoe run .+_tune\.om --input random\n", out)


def test_session_tunes_beside_its_calls(tmp_path: Path) -> None:
    file = save_model(slow_chain_net(channels=16, extent=32), tmp_path / "net.onnx")
    x = np.random.default_rng(0).standard_normal((1, 16, 32, 32)).astype(np.float32)
    expected = ort.InferenceSession(file).run(None, {"x": x})
    (tmp_path / "bank").mkdir()
    options = {"tune": True, "trials": 1, "accept_busy": True}
    with aoe.InferenceSession(file, bank=tmp_path / "bank", **options) as session:
        before = session.run(None, {"x": x})
        assert session.wait_for_tuning(300)
        after = session.run(None, {"x": x})
    assert [str(form.stage) for form in session.forms] == ["tuned"]
    assert "tuned" in repr(session) and len(session.to_records()) == 1
    for found in (before, after):
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    assert [*(tmp_path / "bank").rglob("*.jsonl")]


def test_module_is_served_from_the_bank_the_options_of_the_process_name(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import aoe.torch

    module, x = torch.nn.Mish().eval(), torch.randn(64, 256)
    mode, folder = "ACL_OP_COMPILER_CACHE_MODE", "ACL_OP_COMPILER_CACHE_DIR"
    aoe.torch.set_option({mode: "force", folder: str(tmp_path)})
    try:
        served = aoe.torch.optimize(module, x, core_num=1)
    finally:
        aoe.torch.set_option({})
    with torch.no_grad():
        torch.testing.assert_close(served(x), module(x), rtol=1e-4, atol=1e-5)
    assert not aoe.torch.fallbacks(served)
