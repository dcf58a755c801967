"""A run with a time limit that is killed with -9 behind its first proof leaves a tuned model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from support.engine.models import save_model, slow_chains_net
from support.engine.result_files import demand_identities

import aoe

_TESTS = Path(__file__).parents[1]
_LIMIT_S = 150


@pytest.mark.slow
def test_run_killed_behind_its_first_proof_leaves_a_model_that_computes_right(
    tmp_path: Path,
) -> None:
    for folder in ("bank", "tmp"):
        (tmp_path / folder).mkdir()
    model = slow_chains_net(12)
    save_model(model, tmp_path / "net.onnx")
    told = _told_until_it_is_killed(tmp_path)
    (om_file,) = (tmp_path / "out").glob("*.om")
    tuned = aoe.load(om_file)
    assert not tuned.fallback_reason and tuned.manifest.kernels, told
    rng = np.random.default_rng(0)
    plain = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {one.name: rng.normal(size=one.shape).astype(np.float32) for one in plain.get_inputs()}
    for found, right in zip(tuned.run(None, feed), plain.run(None, feed), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
    (report,) = (tmp_path / "out").glob("aoe_result_opat_*.json")
    body = demand_identities(report, told)
    assert body is not None and body["opat_tuning_result"] == "tuning incomplete"
    assert body["model_performance_improvement"].startswith(("49.", "50."))


def _told_until_it_is_killed(root: Path) -> str:
    """Tune, kill the run once it has written a proven model, and return what it has told."""
    told = []
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "support.engine.proven_tuning", "--model=net.onnx"),
            *(f"--tuning_time_limit={_LIMIT_S}", "--output=out"),
        ],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_TESTS), *sys.path))),
            "TUNE_BANK_PATH": "bank",
            "TMPDIR": str(root / "tmp"),
            "AOE_LOCK_PATH": str(root / "locks"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            told.append(line)
            if any("proven so far" in one for one in told[:-2]):  # behind "writing ..."
                break
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    return "".join(told)
