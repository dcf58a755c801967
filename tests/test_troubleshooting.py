"""What docs/troubleshooting.md shows is what the programs write when that goes wrong."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import mock

import pytest
from support.aoe_contract import ROOT, Runs, call
from support.engine.models import chain_model, save_model

from aoe.device.cpu.device import Cpu
from aoe.folders.turns import Turns
from aoe.measurement import CpuUse, MachineLoad, Measurement, Outcome

PAGE = ROOT / "docs" / "troubleshooting.md"
SHOWN = re.compile(r"^<!-- shown: ([^\n]*) -->\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SYMPTOMS = SHOWN.findall(PAGE.read_text(encoding="utf-8"))
SIDES = {"ours": 64, "theirs": 128}


def _program(code: str, *arguments: str, cwd: Path, **variables: str) -> str:
    """Run `aoe` in a process of its own, something changed before; return all it writes."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nfrom aoe.cli.app import main; main()", *arguments],
        cwd=cwd,
        env={**os.environ, "TUNE_BANK_PATH": "bank", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return done.stdout


def _tuning(runs: Runs, line: str) -> str:
    return call(line, runs.root).text


# ---- the machine ----


def _busy_report(runs: Runs, work: Path) -> str:
    """Report a run as if no machine were quiet enough: busy ones cannot be ordered."""
    code = "import aoe.report.whole_model as report; report.QUIET_SHARE = 2"
    return _program(code, "--model=plain.onnx", f"--output={work / 'out'}", cwd=runs.root)


def _busy_operator(runs: Runs, work: Path) -> str:
    from aoe.tasks.operators import operator

    use = CpuUse(cpu_s=1.0, waited_s=1.0, stolen_s=0.5, wall_s=2.0, switches=7)
    load = MachineLoad(use=use, threads=2)
    found = Measurement(outcome=Outcome.CORRECT, baseline_us=(1.0,), tuned_us=(1.0,), load=load)
    one = mock.Mock(op_name="n0")
    return operator.undecided(one, None, mock.Mock(), found).reason


def _waiting(runs: Runs, work: Path) -> str:
    told: list[str] = []
    first, second = Turns(work, ["cpu0"]), Turns(work, ["cpu0"], told.append)
    with first.measuring(), contextlib.ExitStack() as held:
        assert not second.take(held, wait_s=1.5)
    return "\n".join(told)


def _no_compiler(runs: Runs, work: Path) -> str:
    with mock.patch("importlib.util.find_spec", return_value=None):
        return _tuning(runs, f"PATH={work} CC= aoe --model=plain.onnx --output={work / 'out'}")


def _wrong_compiler(runs: Runs, work: Path) -> str:
    return _tuning(runs, f"CC=/nowhere/cc aoe --model=plain.onnx --output={work / 'out'}")


def _no_engine(runs: Runs, work: Path) -> str:
    return _program("import sys; sys.modules['halide'] = None", "--model=net.onnx", cwd=runs.root)


# ---- the model ----


def _open_shape(runs: Runs, work: Path) -> str:
    save_model(chain_model(["Exp", "Sin"], ("rows", 8)), work / "open.onnx")
    return _tuning(runs, f"aoe --model={work / 'open.onnx'} --output={work / 'out'}")


def _reasons(runs: Runs, work: Path) -> str:
    from aoe.report.tuning import OperatorTuningReport
    from aoe.results.files import NOT_DECIDED, NOT_TRIED_OUT

    def result(schedule: object, reason: str = "") -> mock.Mock:
        validation = mock.Mock(undecided="", drops={})
        tuned = mock.Mock(schedule=schedule, reason=reason)
        return mock.Mock(operators=[tuned], validation=validation)

    busy, failed = f"{NOT_DECIDED}: 60% of the CPU time", f"{NOT_TRIED_OUT}: no answer"
    results = (result(None), result(object()), result(None, busy), result(None, failed))
    return "\n".join(OperatorTuningReport(result=one).reason_for_nothing() for one in results)


# ---- the bank ----


def _bad_record(runs: Runs, work: Path) -> str:
    """Tune a model whose record was edited."""
    (file,) = runs.files("bank/*/unified_bank/*_AiCore_*.json")
    copy = work / "bank" / file.relative_to(runs.root / "bank")
    copy.parent.mkdir(parents=True)
    text = re.sub(r'\["(parallel|vectorize|split)", "', r'["\1", "no-such-', file.read_text())
    copy.write_text(text)
    options = ("--input_shape=x:1,16,96,96", "--trials=1", f"--output={work / 'out'}")
    screen = _program(
        "", "--model=net.onnx", *options, cwd=runs.root, TUNE_BANK_PATH=str(work / "bank")
    )
    return re.sub(r"^.*?\w+: its record", "n0: its record", screen, flags=re.MULTILINE)


def _closed_bank(runs: Runs, work: Path) -> str:
    real = os.access

    def access(path: object, mode: int, **options: object) -> bool:
        return not mode & os.W_OK and real(path, mode)  # type: ignore[arg-type]

    with mock.patch("os.access", access):
        return _tuning(runs, f"TUNE_BANK_PATH={runs.root / 'bank'} aoe --model=plain.onnx")


def _torn_bank(runs: Runs, work: Path) -> str:
    (file,) = runs.files("bank/*/unified_bank/*_AiCore_*.json")
    copy = work / "bank" / file.relative_to(runs.root / "bank")
    copy.parent.mkdir(parents=True)
    copy.write_bytes(file.read_bytes()[:-30])
    options = ("--input_shape=x:1,16,96,96", f"--output={work / 'out'}")
    return _program(
        "", "--model=net.onnx", *options, cwd=runs.root, TUNE_BANK_PATH=str(work / "bank")
    )


def _full_bank(runs: Runs, work: Path) -> str:
    """Tune into a bank below which no file can be made."""
    (work / "bank").mkdir()
    code = f"""
import errno
from pathlib import Path
made = Path.open
def open_none(path, mode="r", *options, **more):
    if "x" in mode and path.is_relative_to({str(work / "bank")!r}):
        raise OSError(errno.ENOSPC, "No space left on device")
    return made(path, mode, *options, **more)
Path.open = open_none
"""
    options = ("--input_shape=x:1,16,96,96", f"--output={work / 'out'}", "--trials=1")
    return _program(
        code, "--model=net.onnx", *options, cwd=runs.root, TUNE_BANK_PATH=str(work / "bank")
    )


# ---- the tuned model ----


def _wrong_cpu(runs: Runs, work: Path) -> str:
    with mock.patch.object(Cpu, "missing_features", lambda self, needed: ("avx512_skylake",)):
        return _tuning(runs, f"aoe run {runs.root / 'out' / 'net_tune.om'}")


# ---- merges ----


def _git(work: Path, *words: str, fails: bool = False) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words],
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": f"{work}:{os.environ['PATH']}"},
    )
    assert fails or done.returncode == 0, done.stdout
    return done.stdout


def _merged(work: Path, runs: Runs, *, driver: bool) -> str:
    """Merge two branches that changed one record, in a repository made here."""
    (file,) = runs.files("bank/*/unified_bank/*_AiCore_*.json")
    bank = work / file.name
    bank.write_bytes(file.read_bytes())
    _git(work, "init", "-q", "-b", "main")
    if driver:
        program = work / "aoebank"
        program.write_text(
            f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c "
            "'import sys; from aoebank.cli import main; sys.exit(main())' \"$@\"\n"
        )
        program.chmod(0o755)
        assert call(f"aoebank git install --command {program}", work).code == 0
    _git(work, "add", "-A")
    _git(work, "commit", "-qm", "base")
    text = bank.read_text()
    for side, time in SIDES.items():
        _git(work, "checkout", "-q", "-B", side, "main")
        bank.write_text(re.sub(r'"cost_time": [\d.]+', f'"cost_time": {time}', text))
        _git(work, "commit", "-qam", side)
    return _git(work, "-c", "aoebank.merge.policy=fail", "merge", "ours", fails=True)


def _merge_conflict(runs: Runs, work: Path) -> str:
    return _merged(work, runs, driver=True)


def _unsettled(runs: Runs, work: Path) -> str:
    _merged(work, runs, driver=True)
    return call("aoebank git check", work).text


def _markers(runs: Runs, work: Path) -> str:
    _merged(work, runs, driver=False)
    return call(f"aoebank validate {work}", work).text


# ---- a run that was stopped ----


def _interrupted(runs: Runs, work: Path) -> str:
    """Send Ctrl-C to a run that has begun."""
    command = "from aoe.cli.app import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "--model=plain.onnx", f"--output={work / 'out'}"],
        cwd=runs.root,
        env={**os.environ, "TUNE_BANK_PATH": "bank"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        return process.stderr.read()


SCENES: Mapping[str, Callable[[Runs, Path], str]] = {
    "busy report": _busy_report,
    "busy operator": _busy_operator,
    "waiting": _waiting,
    "no compiler": _no_compiler,
    "wrong compiler": _wrong_compiler,
    "no engine": _no_engine,
    "no model": lambda runs, work: _tuning(runs, "aoe --model=gone.onnx"),
    "open shape": _open_shape,
    "other framework": lambda runs, work: _tuning(runs, "aoe --model=net.onnx --framework=1"),
    "aoe option": lambda runs, work: _tuning(runs, "aoe --singleop=op.json"),
    "nothing tunable": lambda runs, work: runs.screens["plain"],
    "reasons": _reasons,
    "bad record": _bad_record,
    "no bank": lambda runs, work: _tuning(runs, "TUNE_BANK_PATH=/nowhere aoe --model=net.onnx"),
    "bank is a file": lambda runs, work: _tuning(
        runs, "TUNE_BANK_PATH=net.onnx aoe --model=net.onnx"
    ),
    "bank without permission": _closed_bank,
    "torn bank": _torn_bank,
    "full bank": _full_bank,
    "wrong cpu": _wrong_cpu,
    "no om": lambda runs, work: _tuning(runs, "aoe run net.onnx"),
    "benchmark": lambda runs, work: _tuning(runs, "aoe benchmark net.onnx"),
    "merge conflict": _merge_conflict,
    "unsettled": _unsettled,
    "markers": _markers,
    "interrupted": _interrupted,
}

# scenes that start the engine or git in processes of their own
OF_PROCESSES = (
    "busy report",
    "no engine",
    "bad record",
    "torn bank",
    "full bank",
    "merge conflict",
    "unsettled",
    "interrupted",
)


def test_every_symptom_has_its_scene() -> None:
    assert sorted(name for name, _ in SYMPTOMS) == sorted(SCENES)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param(*symptom, marks=pytest.mark.slow if symptom[0] in OF_PROCESSES else ())
        for symptom in SYMPTOMS
    ],
    ids=[name for name, _ in SYMPTOMS],
)
def test_symptom_is_what_the_program_writes(
    name: str, shown: str, aoe_runs: Runs, tmp_path: Path
) -> None:
    written = [line.rstrip() for line in SCENES[name](aoe_runs, tmp_path).splitlines()]
    for line in shown.splitlines():
        pattern = ".*".join(map(re.escape, line.split("...")))
        fitting = [number for number, text in enumerate(written) if re.fullmatch(pattern, text)]
        assert fitting, f"{line}\nis not in\n" + "\n".join(written)
