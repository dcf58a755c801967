"""What belongs to CANN: jobs go to its own `aoe` and `atc`, options are passed over or refused.

A script stands in for its programs.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path
from platform import machine
from typing import Any

import pytest
from support.commands import aoe_exit_code

from aoe.cli.app import app, atc_main
from aoe.cli.cann import OPTIONS, VARIABLES, warnings_of, without_elsewhere
from aoe.cli.errors import run_app
from aoe.errors import OptionError

DOCS = Path(__file__).resolve().parents[3] / "docs"
SAMPLES = Path(__file__).resolve().parents[3] / "sample_banks" / "ascend" / "Ascend910B2"
RUNTIME = "Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json"
UNIFIED = "Ascend910B2_24_AiCore_matmul.json"
_SCRIPT = """#!{python}
import json, os, shutil, sys
from pathlib import Path
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
print("stand-in at work")
for source, target in {files!r}:
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
sys.exit({exit_code})
"""


class Toolkit:
    """A stand-in for an installed CANN, in a home of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "calls"
        self.install()

    def install(
        self, *files: tuple[Path, Path], exit_code: int = 0, program_name: str = "aoe"
    ) -> None:
        """Write the program; `files` are what it copies into banks."""
        program = self.root / "toolkit" / "bin" / program_name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(
            _SCRIPT.format(
                python=sys.executable,
                log=str(self.log),
                files=[(str(source), str(target)) for source, target in files],
                exit_code=exit_code,
            )
        )
        program.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        """Options of each call."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolkit:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(tmp_path / "toolkit"))
    for name in ("TUNE_BANK_PATH", "ASCEND_CACHE_PATH", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return Toolkit(tmp_path)


def run(*arguments: str) -> int:
    return aoe_exit_code(arguments)


SOC = "--soc_version=Ascend910B2"


def test_options_are_handed_over_and_the_target_is_not(toolkit: Toolkit) -> None:
    code = run(
        *("--model", "net.onnx", "-f", "5", "-j", "1", SOC, "--output=out", "--device=3"),
        *("--dynamic_batch_size=1,2", "--reload", "--Fdeeper_opat", "--input_shape=x:-1,3"),
    )
    assert code == 0
    assert toolkit.calls == [
        [
            *("--model=net.onnx", "--framework=5", "--output=out", "--device=3"),
            *("--dynamic_batch_size=1,2", "--reload", "--Fdeeper_opat", "--input_shape=x:-1,3"),
            "--job_type=1",
        ]
    ]


def test_value_of_an_option_that_is_named_as_a_command_is_a_value(toolkit: Toolkit) -> None:
    assert run("--output", "run", "--model=net.onnx", SOC) == 0
    assert toolkit.calls == [["--output=run", "--model=net.onnx", "--job_type=2"]]


def test_training_script_is_no_job_of_the_program(toolkit: Toolkit) -> None:
    for words in (("--script", "gone.py"), ("--script=gone.py",)):
        assert run(SOC, "--job_type=2", *words) != 0
    assert toolkit.calls == []


def test_several_modes_are_several_calls(toolkit: Toolkit) -> None:
    assert run("--model=net.onnx", SOC, "--job_type=sgat,2") == 0
    assert [call[-1] for call in toolkit.calls] == ["--job_type=1", "--job_type=2"]


def test_options_of_this_engine_stay_here_with_a_warning(
    toolkit: Toolkit, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("--model=net.onnx", SOC, "--trials", "9", "--json") == 0
    assert toolkit.calls == [["--model=net.onnx", "--job_type=2"]]
    shown = capfd.readouterr()
    assert "--trials is of this engine" in shown.err and "stand-in at work" in shown.err
    document: dict[str, Any] = json.loads(shown.out)
    assert document["schema"] == "aoe.cann/1" and document["banks"] == []


def test_records_in_the_shared_bank_are_found_where_they_are(
    toolkit: Toolkit,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = toolkit.root / "bank"
    old, new = (bank / "Ascend910B2" / "unified_bank" / name for name in (RUNTIME, UNIFIED))
    old.parent.mkdir(parents=True)
    shutil.copy(SAMPLES / "unified_bank" / RUNTIME, old)
    monkeypatch.setenv("TUNE_BANK_PATH", str(bank))
    toolkit.install((SAMPLES / "unified_bank" / UNIFIED, new))
    assert run("--model=net.onnx", SOC) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("bank: ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"bank: {new} (new, ") and "taken to" not in lines[0]


def test_records_of_the_other_default_place_are_taken_in(
    toolkit: Toolkit, capfd: pytest.CaptureFixture[str]
) -> None:
    below = Path("Ascend910B2") / "unified_bank" / RUNTIME
    theirs = toolkit.root / "Ascend/cann/data/aoe/custom/op" / below
    ours = toolkit.root / "Ascend/latest/data/aoe/custom/op" / below
    toolkit.install((SAMPLES / "unified_bank" / RUNTIME, theirs))
    assert run("--model=net.onnx", SOC, "--json") == 0
    (bank,) = json.loads(capfd.readouterr().out)["banks"]
    assert (bank["file"], bank["taken_to"]) == (str(theirs), str(ours))
    assert bank["records"] > 0 and bank["problem"] is None
    kept = ours.read_text().splitlines()
    assert sorted(kept) == sorted(theirs.read_text().splitlines())


def test_broken_bank_is_told_and_stays(toolkit: Toolkit, capfd: pytest.CaptureFixture[str]) -> None:
    broken = toolkit.root / "broken"
    broken.write_text("[")
    below = Path("Ascend910B2") / "unified_bank" / UNIFIED
    toolkit.install((broken, toolkit.root / "Ascend/latest/data/aoe/custom/op" / below))
    assert run("--model=net.onnx", SOC) == 0
    assert ", stays there: " in capfd.readouterr().out


def test_failure_of_the_program_is_an_error_after_what_it_left(
    toolkit: Toolkit, capfd: pytest.CaptureFixture[str]
) -> None:
    toolkit.install(exit_code=7)
    assert run("--model=net.onnx", SOC, "--job_type=1,2") == 3
    shown = capfd.readouterr()
    assert len(toolkit.calls) == 1
    assert "CANN's aoe has failed" in shown.err and "exit code 7" in shown.err
    assert "bank: no file was written" in shown.out


def test_without_a_toolkit_one_error_says_where_was_looked(
    toolkit: Toolkit,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME")
    monkeypatch.setenv("PATH", str(toolkit.root))
    assert run("--model=net.onnx", SOC) == 3
    message = capfd.readouterr().err
    assert message.count("error:") == 1
    for place in ("ASCEND_TOOLKIT_HOME is not set", "/usr/local/Ascend", "no atc in PATH"):
        assert place in message
    hint = message[message.index("hint: ") :].splitlines()[0]
    assert "--soc_version=host is for this CPU (" in hint
    assert "for Ascend910B2 install CANN" in hint


def test_atc_is_handed_its_options_and_the_target(
    toolkit: Toolkit, capfd: pytest.CaptureFixture[str]
) -> None:
    toolkit.install(program_name="atc")
    with pytest.raises(SystemExit) as ended:
        atc_main(
            [
                *("--model=net.onnx", "-framework", "5", "--output", "net", SOC, "--quiet"),
                *("--insert_op_conf=aipp.cfg", "--op_bank_path=bank", "--accuracy=1e-3"),
            ]
        )
    assert ended.value.code == 0
    assert toolkit.calls == [
        [
            *("--model=net.onnx", "--framework=5", "--output=net", SOC),
            *("--insert_op_conf=aipp.cfg", "--op_bank_path=bank"),
        ]
    ]
    shown = capfd.readouterr()
    assert "handed over: " in shown.out and "bank: " not in shown.out
    assert "--accuracy is of this engine and is not handed to CANN's atc" in shown.err


def test_without_atc_the_hint_offers_the_target_of_this_machine(
    toolkit: Toolkit, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("compile", "--model=net.onnx", "--output=net", SOC) == 3
    message = capfd.readouterr().err
    assert "needs the atc of a CANN toolkit" in message
    assert "hint: --soc_version=host is for this CPU (" in message


def test_gradients_are_no_job_of_the_program(
    toolkit: Toolkit, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("--model=net.onnx", SOC, "--job_type=4") == 2
    assert "AOE_MODE=4" in capfd.readouterr().err
    assert not toolkit.calls


def test_help_stays_the_help_of_this_program(
    toolkit: Toolkit, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(SOC, "--help") == 0
    assert "Tune a model" in capfd.readouterr().out and not toolkit.calls


# ---- what is not for this engine ----


@pytest.mark.parametrize("name", OPTIONS)
def test_option_is_passed_over_or_refused_by_name(name: str) -> None:
    option = OPTIONS[name]
    words = [name] if option.is_flag else [name, "some"]
    if "*" in option.harmless:
        kept, (warning,) = without_elsewhere(["--model=m", *words, "--quiet"])
        assert kept == ["--model=m", "--quiet"]
        assert warning.startswith(f"{name} is of CANN's AOE") and option.why in warning
    else:
        with pytest.raises(OptionError) as caught:
            without_elsewhere(["--model=m", *words])
        assert name in str(caught.value) and option.why in str(caught.value)
        assert caught.value.hint == option.instead != ""


@pytest.mark.parametrize(
    "line",
    [
        ["--virtual_type=0"],
        ["--virtual_type", "0"],
        ["--input_format=NCHW"],
        ["--input_format=NHWC", "--framework=3"],
        ["-f", "3", "--input_format", "NHWC"],
        ["-f3", "--input_format=NHWC"],
        ["--host_env_os=linux"],
        [f"--host_env_cpu={machine()}"],
    ],
)
def test_value_that_changes_nothing_is_passed_over(line: list[str]) -> None:
    kept, warnings = without_elsewhere([*line, "--trials=3"])
    assert kept[-1] == "--trials=3" and len(warnings) == 1
    assert not set(kept).intersection(OPTIONS)


@pytest.mark.parametrize("line", [["--reload"], ["--reload=job"], ["--Fdeeper_opat", "--seed=1"]])
def test_flags_take_no_word_with_them(line: list[str]) -> None:
    kept, warnings = without_elsewhere([*line, "--model", "m"])
    assert kept == [*line[1:], "--model", "m"] and len(warnings) == 1


def test_option_without_its_value_at_the_end_is_refused_too() -> None:
    with pytest.raises(OptionError, match="--singleop"):
        without_elsewhere(["--singleop"])


def test_own_options_are_left_alone() -> None:
    own = ["--model", "m.onnx", "--output=out", "-j", "2", "--json"]
    assert without_elsewhere(own) == (own, [])
    context = app.info.cls
    assert context is not None and not set(OPTIONS) & {"--model", "--job_type", "--weight"}


def test_variables_are_told_once_set() -> None:
    assert warnings_of({"HOME": "/root", "AOE_MODE": "", "ASCEND_DEVICE_ID": "0"}) == []
    env = dict.fromkeys(VARIABLES, "0")
    assert [text.split()[0] for text in warnings_of(env)] == list(VARIABLES)


def test_refusal_is_a_usage_error_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, ["--singleop=x.json", "--json"]) == 2
    assert '"code": "AOE001"' in capsys.readouterr().out
    assert run_app(app, ["--singleop=x.json"]) == 2
    told = capsys.readouterr().err
    assert "a model is what is tuned" in told and "hint: make an ONNX model" in told


@pytest.mark.parametrize("line", [["--json", "run", "x.om"], ["run", "x.om", "--json"]])
def test_json_counts_before_a_command_too(
    line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(app, line) == 3
    assert capsys.readouterr().out.startswith('{"schema": "aoe.error/1"')


def test_options_and_variables_the_program_warns_of_are_in_the_table() -> None:
    table = tomllib.loads((DOCS / "for-aoe-users.toml").read_text(encoding="utf-8"))
    words = {
        kind: " ".join(row["name"] for row in table[kind]).replace(",", " ").split()
        for kind in ("option", "variable")
    }
    assert not [name for name in OPTIONS if name not in words["option"]]
    assert not [name for name in VARIABLES if name not in words["variable"]]
