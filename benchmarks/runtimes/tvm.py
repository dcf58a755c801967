"""TVM: its default pipeline, or MetaSchedule for as long as the engine has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import onnx
import tvm
from runtimes.runtime import Facts, RunOnce, RuntimeTask
from runtimes.worker import end_with_parent
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
from tvm.target import codegen

_LIBRARY = "network.so"
_DATABASE = ("database_workload.json", "database_tuning_record.json")
_TRIALS_PER_TASK = 32
_MOST_TRIALS = 100_000


def build(task: RuntimeTask) -> Facts:
    """Import the ONNX file, tune where asked for, compile into a library."""
    facts: dict[str, int] = {}
    target = _target(task.threads)
    if task.options.get("search") == "meta_schedule":
        _tune_for(task)
        facts["trials"] = _repaired(task.folder)
        module = relax.pipeline.static_shape_tuning_pipeline(
            total_trials=0, target=target, work_dir=str(task.folder)
        )(_imported(task.model))
    else:
        with target:
            module = relax.get_pipeline("zero")(_imported(task.model))
    tvm.compile(module, target).export_library(str(task.folder / _LIBRARY))
    return facts


def load(task: RuntimeTask) -> tuple[RunOnce, Facts]:
    """Load the library into TVM's virtual machine."""
    library = tvm.runtime.load_module(str(task.folder / _LIBRARY))
    main = relax.VirtualMachine(library, tvm.cpu())["main"]
    inputs = [tvm.runtime.tensor(values) for values in task.inputs.values()]

    def run() -> list:  # type: ignore[type-arg]
        results = main(*inputs)
        single = isinstance(results, tvm.runtime.Tensor)
        return [result.numpy() for result in ((results,) if single else results)]

    return run, {}


def tune(model: Path, folder: Path, threads: int) -> None:
    """Search without end; results are in the database of the folder as they come.

    Prints a line when it begins: what TVM imports first takes long and is no search.
    """
    from tvm.s_tir import tensor_intrin  # noqa: F401

    print("searching", flush=True)
    os.dup2(2, 1)  # nobody reads on
    target = _target(threads)
    relax.pipeline.static_shape_tuning_pipeline(
        total_trials=_MOST_TRIALS,
        target=target,
        work_dir=str(folder),
        max_trials_per_task=_TRIALS_PER_TASK,
    )(_imported(model))


def _tune_for(task: RuntimeTask) -> None:
    """Tune in a process of its own and end it, and all it has started, when the time is over."""
    for name in _DATABASE:
        (task.folder / name).unlink(missing_ok=True)
    arguments = (str(task.model), str(task.folder), str(task.threads))
    command = [sys.executable, "-m", "runtimes.tvm", *arguments]
    log = task.folder / "search.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=errors
        ) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        try:
            code = child.wait(timeout=task.budget_s)
        except subprocess.TimeoutExpired:
            code = 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    if code:
        said = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"MetaSchedule ended with code {code}: {said}")


def _repaired(folder: Path) -> int:
    """Cut a last line that was being written when the search was ended; return the trials."""
    for name in _DATABASE:
        file = folder / name
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        if lines and not _is_json(lines[-1]):
            lines.pop()
        file.write_text("".join(lines))
    return len(lines)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return line.endswith("\n")


def _imported(model: Path) -> tvm.IRModule:
    return from_onnx(onnx.load(model), keep_params_in_input=False)


def _target(threads: int) -> tvm.target.Target:
    cpu = codegen.llvm_get_system_cpu()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})


if __name__ == "__main__":
    end_with_parent()
    tune(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
