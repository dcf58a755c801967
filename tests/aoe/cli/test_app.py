"""The `aoe` command line: exit codes, one JSON document, and messages with a way out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from support.engine.models import chain_model, save_model
from support.engine.stand_in_modes import StandInMode

from aoe.cli.app import main
from aoe.errors import AoeError, OptionError
from aoe.tuner.mode import JobType, ModeContext, TuneSettings
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoe.tuner.registry import KINDS, TaskKind
from aoebank import BankFormatError


@dataclass(frozen=True)
class Done:
    """What a command line left: its exit code and its two streams."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


class Run:
    """Runs `aoe` in this process, with an engine a test may replace."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.engine = REAL_ENGINE
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments, engine=self.engine)
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out, err)

    def ask(self, asked: Callable[[ModeContext], object]) -> None:
        """Let every mode call a function instead of checking what it is given."""
        mode = StandInMode(lambda context: None, asked=asked)
        self.engine = EngineParts(modes=dict.fromkeys(KINDS, mode))

    def fail(self, error: BaseException) -> None:
        """Let every run end in an error."""

        def asked(_: ModeContext) -> None:
            raise error

        self.ask(asked)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `aoe` in this process."""
    return Run(capsys)


@pytest.fixture
def tuned(run: Run) -> list[TuneSettings]:
    """Return the settings of the runs a command line asks for; nothing is tuned."""
    seen: list[TuneSettings] = []

    def asked(context: ModeContext) -> None:
        seen.append(context.settings)
        raise typer.Exit(0)

    run.ask(asked)
    return seen


# ---- options ----


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model=m.onnx", "--framework=5", "--job_type=2", "--output=d"),
        ("--model", "m.onnx", "--framework", "5", "--job_type", "2", "--output", "d"),
        ("-m", "m.onnx", "-f", "5", "-j", "2", "--output", "d"),
        ("-mm.onnx", "-f5", "-j2", "--output=d"),
    ],
)
def test_options_take_every_spelling(
    run: Run, tuned: list[TuneSettings], arguments: tuple[str, ...]
) -> None:
    assert run(*arguments).code == 0
    (settings,) = tuned
    assert settings.model == Path("m.onnx")
    assert settings.framework == 5
    assert settings.output == Path("d")


def test_value_that_is_named_as_a_command_is_a_value(run: Run, tuned: list[TuneSettings]) -> None:
    done = run("--output", "demo", "--model=m.onnx", "--device_id=0")
    assert done.code == 0 and "--device_id is of CANN's AOE" in done.err
    assert tuned[0].output == Path("demo")


def test_defaults_are_those_of_the_settings(
    run: Run, tuned: list[TuneSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AOE_ACCEPT_BUSY")
    run("--model=m")
    assert tuned == [TuneSettings(model=Path("m"))]


def test_options_of_precision_reach_the_settings(
    run: Run, tuned: list[TuneSettings], tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    (tmp_path / "lists.json").write_text('{"black-list": {"to-add": ["Gemm"]}}')
    done = run(
        "--model=m",
        "--precision_mode=allow_fp32_to_bf16",
        f"--modify_mixlist={tmp_path / 'lists.json'}",
        "--accuracy=cosine>=0.99",
        f"--calibration={tmp_path}",
    )
    assert done.code == 0, done.err
    settings = tuned[-1].precision
    assert settings.mode.value == "allow_fp32_to_bf16"
    assert list(settings.lists.listings) == ["Gemm"]
    assert str(settings.accuracy) == "cosine >= 0.99"
    assert len(settings.calibration) == 1
    for flag in ("--strict_fp32", "--deterministic"):
        run("--model=m", flag)
        assert tuned[-1].precision.strict


def test_lone_number_of_a_mode_is_read_in_words_first(run: Run, tuned: list[TuneSettings]) -> None:
    run("--model=m", "-j", "1")
    assert "--job_type=1 as in AOE's reference" in tuned[-1].job_note
    assert tuned[-1].job_note.endswith("--job_type=opat is operator tuning)")
    for clear in (("-j", "opat"), ("-j", "1,2"), ()):
        run("--model=m", *clear)
        assert tuned[-1].job_note == ""


def test_mode_is_added_by_a_module_and_a_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = SimpleNamespace(
        job=JobType.SGAT,
        tuning_name="m_1",
        om_file=tmp_path / "m.om",
        result_file=tmp_path / "aoe_result_sgat_1_2.json",
        bank=tmp_path / "bank",
        bank_failure=None,
        speedup=1.25,
        metric="latency",
    )
    mode = SimpleNamespace(check=lambda context: None, run=lambda context: result)
    monkeypatch.setitem(sys.modules, "subgraph_mode", mode)
    monkeypatch.setitem(KINDS, JobType.SGAT, TaskKind(mode="subgraph_mode"))
    done = run("--model=m", "--job_type=1")
    assert done.code == 0
    assert f"tuned model: {tmp_path / 'm.om'}" in done.out
    assert done.out.endswith(
        "m_1 process finished. Performance improved by 25.00%\nAoe process finished\n"
    )
    document = run("--model=m", "--job_type=sgat", "--json").document
    assert (document["schema"], document["speedup"]) == ("aoe.mode/1", 1.25)


# ---- usage errors: exit code 2 ----

_USAGE = [
    (),
    ("--model",),
    ("--no_such_option",),
    ("no_such_command",),
    ("--model=m", "--framework=five"),
    ("--model=m", "--trials=0"),
    ("--model=m", "--memory=-1"),
    ("--model=m", "--aicore_num=0"),
    ("--model=m", "--tuning_time_limit=-1"),
    ("--model=m", "--job_type=7"),
    ("--model=m", "--job_type=5"),
    ("--model=m", "--progress_bar=maybe"),
    ("--model=m", "--precision_mode=allow_mix_precision_fp16"),
    ("--model=m", "--modify_mixlist=lists.json"),
    ("--model=m", "--accuracy=good"),
    ("--model=m", "--calibration=no_such_folder"),
    ("--model=m", "--strict_fp32", "--precision_mode=allow_fp32_to_bf16"),
    ("--script=train.py", "--job_type=4", "--strict_fp32"),
    ("run",),
    ("benchmark",),
    ("benchmark", "x.onnx", "--pairs=1"),
    ("--model=m", "--seed=-1"),
    ("--model=m", "--seed=4294967296"),
    ("--model=m", "--aicore_num=-2"),
    ("run", "x.om", "--seed=-1"),
    ("run", "x.om", "--threads=0"),
    ("benchmark", "x.om", "--seed=-1"),
]


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize("arguments", _USAGE, ids=" ".join)
def test_wrong_command_line_exits_with_two_and_a_message_or_a_document(
    run: Run, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err and "Traceback" not in done.err
    told = run("--json", *arguments)
    assert (told.code, told.err) == (2, "")
    assert told.document["schema"] == "aoe.error/1"
    assert told.document["error"]["message"] and told.document["error"]["code"]


@pytest.mark.parametrize(
    ("line", "way_out"),
    [("--loud", "aoe --help"), ("run", "aoe run --help"), ("run x.om --loud", "aoe run --help")],
)
def test_hint_of_a_wrong_command_line_names_the_command(run: Run, line: str, way_out: str) -> None:
    assert f"hint: {way_out}\n" in run(*line.split()).err


@pytest.mark.parametrize(
    ("word", "way_out"),
    [
        ("gone.onnx", "aoe --model=gone.onnx"),
        ("gone.om", "aoe --om=gone.om"),
        ("net", "aoe --model=net"),
        ("nets", "aoe --model_path=nets"),
    ],
)
def test_model_in_the_place_of_a_command_is_told_its_option(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, way_out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net").touch()
    Path("nets").mkdir()
    done = run(word)
    assert done.code == 2 and f"hint: {way_out}\n" in done.err


@pytest.mark.parametrize(
    "arguments", [("--output=",), ("--output", ""), ("--output=o", "-w", "")], ids=str
)
def test_empty_path_is_not_taken_for_the_working_directory(
    run: Run, tuned: list[TuneSettings], arguments: tuple[str, ...]
) -> None:
    for command in ((), ("compile",)):
        done = run(*command, "--model=m", *arguments)
        assert (done.code, tuned) == (2, []) and ": an empty path" in done.err


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("om", ["run", ""]),
        ("--require_signature", ["inspect", "m.om", "--require_signature="]),
        ("--vs", ["benchmark", "m.om", "--vs", ""]),
        ("--trace", ["profile", "m.onnx", "--trace="]),
        ("--compare", ["profile", "--compare", "", "b.json"]),
        ("--op_bank_path", ["compile", "--model=m", "--output=o", "--op_bank_path", ""]),
        ("--custom_ops_library", ["advise", "m", "--custom_ops_library="]),
        ("[BANK]", ["verify", ""]),
        ("--key", ["sign", "m.om", "--key", ""]),
    ],
)
def test_empty_path_is_refused_by_every_command_as_well(
    run: Run, where: str, words: list[str]
) -> None:
    done = run(*words)
    assert done.code == 2 and f"error: {where}: an empty path\n" in done.err


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(
    "option", ["--Fnonhomo_split", "--tune_optimization_level=O1", "--anonymous"]
)
def test_option_of_subgraph_tuning_alone_is_told_where_it_changes_nothing(
    run: Run, option: str
) -> None:
    told = f"warning: {option.partition('=')[0]} changes nothing here"
    assert told in run("--model=m", option).err
    assert told not in run("--model=m", option, "--job_type=1,2").err


@pytest.mark.parametrize(
    "line", ["--model=m", "plan m.onnx", "compile --model=m --output=o --aoe_mode=2"]
)
def test_repeat_tune_that_is_no_switch_is_named(
    run: Run, tuned: list[TuneSettings], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("REPEAT_TUNE", "sometimes")
    done = run(*line.split())
    assert done.code == 2
    assert "REPEAT_TUNE" in done.err
    assert tuned == []


# ---- errors of a run ----


def test_engine_error_exits_with_three_and_its_hint(run: Run) -> None:
    run.fail(AoeError("place", "problem", got=1, expected=2, hint="do this"))
    done = run("--model=m")
    assert done.code == 3
    assert done.err == "error: place: problem (got 1, expected 2)\nhint: do this\n"
    assert run("--model=m", "--json").document["error"] == {
        "code": "AOE000",
        "message": "place: problem (got 1, expected 2)",
        "hint": "do this",
    }


def test_bank_error_exits_with_three_and_says_its_hint_once(run: Run) -> None:
    error = BankFormatError("torn", path=Path("bank.json"), line=3, column=1, hint="validate it")
    run.fail(error)
    done = run("--model=m")
    assert done.code == 3
    assert done.err == "error: bank.json:3:1: torn\nhint: validate it\n"
    found = run("--model=m", "--json").document["error"]
    assert found["code"] == "bank_format"
    assert found["hint"] == "validate it"


def test_usage_error_of_the_engine_exits_with_two(run: Run) -> None:
    run.fail(OptionError("--search", "unknown search"))
    assert run("--model=m").code == 2


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        PermissionError(13, "Permission denied", "/some/file"),
    ],
)
def test_error_of_the_file_system_exits_with_three(run: Run, error: OSError) -> None:
    run.fail(error)
    done = run("--model=m")
    assert done.code == 3
    assert str(error.strerror) in done.err
    assert str(error.strerror) in run("--model=m", "--json").document["error"]["message"]


def test_too_little_memory_is_no_bug(run: Run) -> None:
    run.fail(MemoryError("Unable to allocate 4.00 EiB"))
    done = run("--model=m")
    assert done.code == 3
    assert "aoe: not enough memory: Unable to allocate 4.00 EiB" in done.err


def test_bug_exits_with_four_and_leaves_its_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run.fail(ZeroDivisionError("oops"))
    done = run("--model=m")
    assert done.code == 4
    assert "internal error: ZeroDivisionError: oops" in done.err
    assert "Traceback" not in done.err
    (log,) = tmp_path.glob("aoe_bug_*.log")
    assert str(log) in done.err
    assert "Traceback" in log.read_text()
    document = run("--model=m", "--json").document
    assert document["error"]["code"] == "bug"
    assert "oops" in document["error"]["message"]


def test_debug_shows_the_traceback(run: Run) -> None:
    run.fail(AoeError("place", "problem"))
    assert "Traceback" in run("--model=m", "--debug").err


def test_ctrl_c_exits_with_130_and_says_what_is_kept(run: Run) -> None:
    run.fail(KeyboardInterrupt())
    done = run("--model=m")
    assert done.code == 130
    assert "in the bank" in done.err
    assert run("--model=m", "--json").document["error"]["code"] == "interrupted"


def test_ctrl_c_says_nothing_of_a_bank_nobody_writes(run: Run) -> None:
    run.fail(KeyboardInterrupt())
    done = run("compile", "--model=m", "--output=o")
    assert done.code == 130
    assert done.err == "\ninterrupted\n"


# ---- answers without a run ----


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_documented_options(run: Run, flag: str) -> None:
    done = run(flag)
    assert done.code == 0
    for word in ("--model", "--job_type", "--input_shape", "--output", "demo", "run", "benchmark"):
        assert word in done.out


def test_json_file_of_an_earlier_call_is_written_anew(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "versions.json"
    for _ in range(2):
        done = run("--version", "--json", str(file))
        assert done.code == 0 and "wrote" in done.err
        assert json.loads(file.read_text())["schema"] == "aoe.version/1"
        file.write_text(file.read_text().replace("versions", "earlier"))


def test_version_lists_what_a_measurement_depends_on(run: Run) -> None:
    done = run("--version")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == [
        "aoebank",
        "onnxruntime",
        "halide",
        "onnx",
    ]
    document = run("--version", "--json").document
    assert document["schema"] == "aoe.version/1"
    assert set(document["versions"]) == {"aoebank", "onnxruntime", "halide", "onnx"}


# ---- the whole command, as far as the first check that fails ----


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty bank and make it the process's."""
    folder = tmp_path / "bank"
    folder.mkdir()
    monkeypatch.setenv("TUNE_BANK_PATH", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.usefixtures("bank")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--model=open.onnx",), 3, '--input_shape="x:1,4"'),
        (("--model=open.onnx", "--input_shape=y:1,4"), 3, "no such input"),
        (("--model=open.onnx", "--input_shape=x:1,4,4"), 3, "another rank"),
        (("--model=open.onnx", "--input_shape=x"), 2, "--input_shape"),
        (
            ("--model=net.onnx", "--framework=3"),
            3,
            "not a TensorFlow model (expected a frozen",
        ),
        (("--model=net.onnx", "--framework=0"), 3, "an ONNX model"),
        (("--model=net.onnx", "--weight=w.caffemodel"), 2, "only Caffe models have a weight file"),
        (("--model=net.onnx", "--search=nonsense"), 2, "bayesian"),
        (("--model=net.onnx", "--input=z:gone.npy"), 2, "no such input (got z, expected ['x'])"),
        (("--model=net.onnx", "--inputs=gone"), 2, "--inputs gone: no such directory"),
        (("--model=net.onnx", "--inputs=.", "--input=a.npy"), 2, "given together with --input"),
    ],
)
def test_bad_input_gives_one_clear_message(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    save_model(chain_model(["Exp"], ("n", 4)), tmp_path / "open.onnx")
    save_model(chain_model(["Exp"]), tmp_path / "net.onnx")
    run.engine = EngineParts(check_toolchain=lambda *_: None)
    done = run(*arguments, "--quiet")
    assert done.code == code
    assert words in done.err
    assert done.err.startswith("error: ")
    assert len(done.err.splitlines()) <= 2
    assert words in run(*arguments, "--json").out.replace('\\"', '"')


def test_missing_bank_is_named_with_its_variable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(chain_model(["Exp"]), tmp_path / "net.onnx")
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "gone"))
    done = run(f"--model={tmp_path / 'net.onnx'}", "--quiet")
    assert done.code == 3
    assert "TUNE_BANK_PATH" in done.err
    assert "hint: " in done.err


_IMPORTS = """
import sys
sys.argv = ["aoe", "--help"]
from aoe.cli.app import main
try:
    main()
except SystemExit as ended:
    assert not ended.code
heavy = {"onnx", "onnxruntime", "halide", "numpy", "sklearn", "google.protobuf"} & set(sys.modules)
assert not heavy, heavy
"""


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert "--model" in done.stdout
