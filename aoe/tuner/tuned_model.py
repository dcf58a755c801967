"""Writes the tuned model of a mode, with what it is made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aoe.om.file import Manifest, write_offline_model
from aoe.tuner.live_report import Phase
from aoe.tuner.tune_context import TuneContext


def write_tuned_model(tuning: TuneContext, parts: Path, **own: Any) -> None:
    """Write the tuned model of a run.

    Args:
        tuning: The run.
        parts: Directory of what is in it.
        own: Members of the `Manifest` that the run does not know: kernels, subgraphs, ...

    Raises:
        OutputError: it cannot be written.
    """
    target, model = tuning.machine.runner.target, tuning.subject.model
    tuning.time.phases.begin(Phase.WRITE)
    tuning.progress.step(f"writing {tuning.places.om_file}")
    manifest: dict[str, Any] = {
        "name": model.name,
        "model_sha256": model.sha256,
        "soc_version": target.soc_version,
        "core_num": target.core_num,
        "cpu_features": (),
        "nchwc_block": tuning.machine.runner.device.channel_block(),
        "versions": dict(tuning.machine.versions),
        "operators": tuning.subject.operators,
        "kernels": (),
        "parts": {},
        "streams": tuning.subject.streams,
    }
    write_offline_model(tuning.places.om_file, parts, Manifest(**manifest | own))
