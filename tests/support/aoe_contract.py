"""Ways to see whether something of AOE is here: the probes of `docs/for-aoe-users.toml`.

A row of the table names a probe and what it is asked with. Everything is asked of the program
itself: its command line in this process, and the files and screens of three runs.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer

from aoe.cli.app import app as aoe_app
from aoe.cli.app import main as aoe_main
from aoe.tuner.mode import TuneSettings
from aoebank.cli import main as aoebank_main
from support.engine.models import matmul_net, save_model, slow_chain_net

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [*(ROOT / "aoe").rglob("*.py"), *(ROOT / "aoebank").rglob("*.py")]
LIMIT_S = 300


@dataclass(frozen=True)
class Call:
    """What a command line left: exit code, streams, and the tunings it asked for."""

    code: int
    out: str
    err: str
    asked: list[TuneSettings] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class Runs:
    """A folder in which models were tuned: `out` a first time, `again` from the bank, `plain`.

    `out` has an `--output`, the others are in `work`; in `plain` nothing is tunable. `sgat` is
    a run of subgraph tuning.
    """

    root: Path
    screens: Mapping[str, str]

    def files(self, pattern: str) -> list[Path]:
        """Return the files of all runs that fit a pattern."""
        return sorted(path for path in self.root.glob(pattern) if path.is_file())

    def result(self, run: str) -> Any:
        """Return the result file of a run."""
        place = run if run in ("out", "sgat") else "work/aoe_data"
        for file in self.files(f"{place}/aoe_result_*.json"):
            value = json.loads(file.read_text())
            name = "plain" if run in ("plain", "sgat") else "net"
            if value[0]["basic"]["tuning_name"].startswith(f"{name}_"):
                return value
        raise LookupError(run)


def tune_models(root: Path) -> Runs:
    """Tune two small models in `root`, one of them twice, with one bank."""
    save_model(slow_chain_net(channels=16, extent=96), root / "net.onnx")
    save_model(matmul_net(width=32), root / "plain.onnx")
    golden = ROOT / "tests" / "golden" / "aoe" / "inputs"
    for folder in ("bank", "home"):
        (root / folder).mkdir()
    (root / "golden.json").write_bytes(_inspectable(golden).read_bytes())
    calls = {
        "out": ("--model=net.onnx", "--input_shape=x:1,16,96,96", "--trials=2", "--output=out"),
        "again": ("--model=net.onnx", "--job_type=2", "--trials=2"),
        "plain": ("--model=plain.onnx", "--framework=5"),
        "sgat": ("--model=plain.onnx", "--job_type=1", "--trials=1", "--output=sgat"),
    }
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "TUNE_BANK_PATH": "bank",
        "HOME": str(root / "home"),
        "AOE_ACCEPT_BUSY": "True",
    }
    screens = {}
    for name, arguments in calls.items():
        work = {} if name in ("out", "sgat") else {"ASCEND_WORK_PATH": "work"}
        done = subprocess.run(
            [sys.executable, "-c", "from aoe.cli.app import main; main()", *arguments],
            cwd=root,
            env={**env, **work},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        screens[name] = done.stdout
    return Runs(root, screens)


def _inspectable(folder: Path) -> Path:
    return next(
        file for file in sorted(folder.rglob("*.json")) if '"before": {' in file.read_text()
    )


def call(line: str, cwd: Path, *, tuning: bool = True) -> Call:
    """Run a command line of `aoe` or `aoebank` in this process, variables in front allowed.

    Args:
        tuning: False to tune nothing, and remember what was asked for.
    """
    words = shlex.split(line)
    variables = {}
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    out, err = io.StringIO(), io.StringIO()
    asked: list[TuneSettings] = []

    def remember(settings: TuneSettings, **_: object) -> None:
        asked.append(settings)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"COLUMNS": "100", **variables}))
        stack.enter_context(mock.patch.object(sys, "argv", words))
        stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        if not tuning:
            stack.enter_context(mock.patch("aoe.cli.tune_command.run_tuning", remember))
        try:
            code: object = aoe_main() if words[0] == "aoe" else aoebank_main(words[1:])
        except SystemExit as stop:
            code = stop.code
    return Call(
        code if isinstance(code, int) else int(bool(code)), out.getvalue(), err.getvalue(), asked
    )


# ---- the command line ----


def _options(runs: Runs, line: str) -> None:
    done = call(f"aoe {line}", runs.root, tuning=False)
    assert (done.code, done.err) == (0, ""), done.text
    assert len(done.asked) == 1


def _settings(runs: Runs, line: str, name: str, value: str) -> None:
    done = call(line, runs.root, tuning=False)
    assert done.code == 0, done.text
    assert not name or [str(getattr(settings, name)) for settings in done.asked] == [value]


def _config(runs: Runs, key: str, text: str, name: str, value: str) -> None:
    (runs.root / "sgat_config.json").write_text(f'{{ // a comment\n  "{key}": {text}\n}}\n')
    _settings(runs, "aoe -m m.onnx --config=sgat_config.json", name, value)


def _ini(runs: Runs, setting: str, name: str, value: str) -> None:
    (runs.root / "settings.ini").write_text(f"[COMMON]\n{setting}\n")
    _settings(runs, "aoe -m m.onnx --config=settings.ini", name, value)


def _takes(runs: Runs, name: str) -> None:
    command = typer.main.get_command(aoe_app)
    assert name in {word for parameter in command.params for word in parameter.opts}


def _passed_over(runs: Runs, option: str) -> None:
    done = call(f"aoe --model=net.onnx {option}", runs.root, tuning=False)
    name = option.partition("=")[0]
    assert done.code == 0, done.text
    assert f"warning: {name} is of CANN's AOE and changes nothing here: " in done.err
    assert len(done.asked) == 1


def _refused(runs: Runs, option: str) -> None:
    done = call(f"aoe --model=net.onnx {option}", runs.root, tuning=False)
    name = option.partition("=")[0]
    assert done.code == 2, done.text
    assert f"error: {name}: of CANN's AOE, not supported here: " in done.err
    assert "hint: " in done.err
    assert not done.asked


def _variable_passed_over(runs: Runs, variable: str) -> None:
    done = call(f"{variable} aoe --model=net.onnx", runs.root, tuning=False)
    name = variable.partition("=")[0]
    assert done.code == 0, done.text
    assert f"warning: {name} is of CANN's AOE and changes nothing here: " in done.err


def _says(runs: Runs, line: str, code: str, text: str) -> None:
    done = call(line, runs.root)
    assert done.code == int(code), done.text
    assert text in done.text


def _read(runs: Runs, name: str) -> None:
    assert any(f'"{name}"' in source.read_text() for source in SOURCES)


def _unread(runs: Runs, name: str) -> None:
    """Look whether nothing asks for it; a word of a message is not asking."""
    asks = re.compile(rf"""(?:env(?:iron)?(?:\.get\(|\[)|\.get\(|\[|in )\s*["']{name}["']""")
    assert not [source for source in SOURCES if asks.search(source.read_text())]


def _no_program(runs: Runs, names: str) -> None:
    scripts = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]")[2]
    assert not [name for name in names.split() if re.search(rf"^{name} =", scripts, re.MULTILINE)]


def _name(runs: Runs, path: str) -> None:
    package, _, name = path.rpartition(".")
    assert name in importlib.import_module(package).__all__


def _argument(path: str) -> Mapping[str, object]:
    package, _, name = path.rpartition(".")
    pytest.importorskip("torch")
    return inspect.signature(getattr(importlib.import_module(package), name)).parameters


def _parameter(runs: Runs, path: str, name: str) -> None:
    assert name in _argument(path)


def _no_parameter(runs: Runs, path: str, name: str) -> None:
    assert name not in _argument(path)


def _warned(runs: Runs, option: str) -> None:
    pytest.importorskip("torch")
    from aoe.torch.process_options import UNUSED, set_option

    value = next(iter(UNUSED[option].values), "any")
    with pytest.warns(UserWarning, match=f"{option} has no effect"):
        set_option({option: value})


# ---- files and screens of the runs ----


def _file(runs: Runs, pattern: str) -> None:
    assert runs.files(pattern), pattern


def _no_file(runs: Runs, pattern: str) -> None:
    assert not [*runs.root.glob(pattern)]


def _field(runs: Runs, run: str, pointer: str) -> None:
    value = runs.result(run)
    for part in pointer.split("/")[1:]:
        value = value[int(part)] if isinstance(value, list) else value[part]
    assert value is not None


def _screen(runs: Runs, run: str, pattern: str) -> None:
    assert re.search(pattern, runs.screens[run]), runs.screens[run]


def _not_on_screen(runs: Runs, run: str, text: str) -> None:
    assert text not in runs.screens[run]


def _format(runs: Runs, name: str) -> None:
    from aoebank.formats.registry import get_format

    assert get_format(name).globs


def _tested(runs: Runs, place: str) -> None:
    """Look whether the test that shows it is there: it takes too long to be done twice."""
    file, _, name = place.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()


def _check(runs: Runs, name: str) -> None:
    from support.aoe_contract_checks import CHECKS

    CHECKS[name](runs)


PROBES: Mapping[str, Callable[..., None]] = {
    "options": _options,
    "settings": _settings,
    "config": _config,
    "ini": _ini,
    "takes": _takes,
    "passed over": _passed_over,
    "refused": _refused,
    "variable passed over": _variable_passed_over,
    "says": _says,
    "read": _read,
    "unread": _unread,
    "no program": _no_program,
    "name": _name,
    "parameter": _parameter,
    "no parameter": _no_parameter,
    "warned": _warned,
    "file": _file,
    "no file": _no_file,
    "field": _field,
    "screen": _screen,
    "not on screen": _not_on_screen,
    "format": _format,
    "tested": _tested,
    "check": _check,
}
# what shows that something is not here; all others show that it is
ABSENCE = frozenset(
    {
        "passed over",
        "refused",
        "variable passed over",
        "warned",
        "no parameter",
        "unread",
        "no program",
        "no file",
        "not on screen",
    }
)
