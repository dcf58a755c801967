"""This project: an `.om` made by the command `aoe` within the stated budget, then loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
from networks.network import CALIBRATION_SEEDS, sample_inputs
from networks.registry import NETWORKS
from runtimes.runtime import Facts, RunOnce, RuntimeTask

import aoe
from aoe.bank.built_in import VARIABLE as BUILT_IN_BANK
from aoe.om.file import read_manifest

Done = subprocess.CompletedProcess[str]
_OM = "tuned.om"
_KEPT = ("seconds", "baseline_ms", "tuned_ms", "speedup", "speedup_low", "speedup_high")


def build(task: RuntimeTask, run: Callable[..., Done] = subprocess.run) -> Facts:
    """Tune into an empty bank of this network's own; what comes with the package is not looked at.

    Args:
        task: What is built, and where.
        run: Runs a command, as `subprocess.run` does.

    Raises:
        RuntimeError: the command refused the model, or failed.
    """
    bank, sets = task.folder / "bank", task.folder / "sets"
    for folder in (bank, sets):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for seed in CALIBRATION_SEEDS:
        np.savez(sets / f"{seed}.npz", **sample_inputs(NETWORKS[task.network], seed=seed))
    command = [
        *(sys.executable, "-P", "-m", "aoe", f"--model={task.model}", "--framework=5"),
        f"--job_type={task.options.get('job_type', '2')}",
        *(f"--inputs={sets}", f"--output={task.folder / _OM}", f"--aicore_num={task.threads}"),
        *(f"--tuning_time_limit={task.budget_s}", "--progress_bar=off", "--seed=0", "--json"),
        *([f"--calibration={sets}"] if "precision_mode" in task.options else []),
        *(f"--{name}={value}" for name, value in task.options.items() if name != "job_type"),
    ]
    environment = {**os.environ, "TUNE_BANK_PATH": str(bank), BUILT_IN_BANK: "off"}
    done = run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"aoe ended with code {done.returncode}: {_told(done)}")
    summary = json.loads(done.stdout)["summary"]
    kernels = sum(operator["in_model"] for operator in summary.get("operators", ()))
    printed = {name: summary[name] for name in _KEPT}
    return {"kernels": kernels, "printed": printed, "memory": summary.get("memory")}


def load(task: RuntimeTask) -> tuple[RunOnce, Facts]:
    """Load the tuned model; one that falls back to ONNX Runtime is no result of the engine."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", aoe.FallbackWarning)
        model = aoe.load(task.folder / _OM, threads=task.threads)
    feed = dict(task.inputs)
    uses = read_manifest(task.folder / _OM).subgraphs
    return lambda: model.run(None, feed), {"forms": sum(len(use.op_names) for use in uses)}


def _told(done: Done) -> str:
    try:
        return str(json.loads(done.stdout)["error"]["message"])
    except (ValueError, KeyError):
        return (done.stderr or done.stdout).strip()[-500:]
