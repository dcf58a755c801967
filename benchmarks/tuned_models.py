"""ONNX Runtime against the tuned model, for the nine networks the onnx package ships.

    python benchmarks/tuned_models.py --output /tmp/tuned_models [--models bvlc_alexnet ...]

Each network is tuned into the output directory (a second run finds the bank there), then both
models are timed in fresh ABBA pairs in one process with the same threads. Prints a Markdown
table with the machine it was made on; `results.json` in the output directory has the samples.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import tests_path  # noqa: F401
from support.contracts.networks import NETWORKS, shipped_network

import aoe
from aoe.bank.built_in import VARIABLE as BUILT_IN_BANK
from aoe.device.registry import default_device, device_of
from aoe.device.toolchain import find_toolchain
from aoe.entry.onnx_file import load_onnx
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.execute.tasks import ModelComparison
from aoe.measurement import MeasurePolicy, estimate_speedup
from aoe.om.file import unpack
from aoe.om.loading import tuned_part
from aoe.ort.inputs import ModelInputs
from aoe.runs.operators.result import OpatResult
from aoe.tuner.parts import library_versions

_TIMEOUT_S = 1800.0


def main() -> int:
    """Tune, measure, print."""
    arguments = _arguments()
    os.environ[BUILT_IN_BANK] = "off"  # what is measured is what a run finds by itself
    output: Path = arguments.output.resolve()
    rows = []
    for name in arguments.models:
        model = _prepared(name, output)
        tuned = aoe.tune(model, output=output / name, bank=output / "bank")
        result = tuned.get(OpatResult)
        rows.append(_row(name, model, result, output, arguments.pairs))
        print(_line(rows[-1]), file=sys.stderr, flush=True)
    machine = _machine()
    (output / "results.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))
    print(_table(machine, rows))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=NETWORKS, choices=NETWORKS)
    parser.add_argument("--pairs", type=int, default=100)
    return parser.parse_args()


def _prepared(name: str, output: Path) -> Path:
    """Write the network with seeded random weights: the shipped ones are all alike."""
    file = output / "models" / f"{name}.onnx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(shipped_network(name), file)
    return file


def _row(name: str, model: Path, result: OpatResult, output: Path, pairs: int) -> dict[str, Any]:
    scratch = output / "unpacked" / name
    part = tuned_part(scratch, unpack(result.om_file, scratch))
    plain = scratch / "imported.onnx"
    plain.write_bytes(load_onnx(model, {}).proto.SerializeToString())
    policy = MeasurePolicy(
        pairs_min=min(30, pairs),
        pairs_max=pairs,
        warmup=5,
        target_half_width=0.002,
        threads=result.target.core_num,
    )
    with Runner(
        device_of(result.target.soc_version), result.target, find_toolchain(os.environ)
    ) as runner:
        found: ModelComparison = runner.call(
            "compare_models",
            timeout_s=_TIMEOUT_S,
            baseline=ModelPart(model=plain, optimize=True),
            tuned=part,
            policy=policy,
            inputs=ModelInputs(seed=1),
        )
    plain.unlink()
    estimate = estimate_speedup(found.measurement)
    return {
        "network": name,
        "ort_ms": found.measurement.baseline_latency_us / 1e3,
        "tuned_ms": found.measurement.latency_us / 1e3,
        "speedup": estimate.median,
        "low": estimate.low,
        "high": estimate.high,
        "pairs": estimate.pairs,
        "operators": len(result.operators),
        "kernels": len(result.validation.kept),
        "tuning_s": result.seconds,
        "max_abs_err": found.deviation.max_abs_err,
        "same_results": found.deviation.acceptable,
        "baseline_us": found.measurement.baseline_us,
        "tuned_us": found.measurement.tuned_us,
    }


def _machine() -> dict[str, Any]:
    target = default_device().describe()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": target.cpu_model,
        "soc_version": target.soc_version,
        "threads": target.core_num,
        "features": "-".join(target.features),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        **library_versions(),
    }


def _table(machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in machine.items())
    geometric = 1.0
    for row in rows:
        geometric *= row["speedup"] ** (1 / len(rows))
    heading = (
        "| network | ORT ms | tuned ms | speed-up | 95 % interval | kernels | tuning s | "
        "largest error |\n|---|---|---|---|---|---|---|---|"
    )
    return "\n".join(
        [facts, "", heading, *map(_line, rows), "", f"geometric mean {geometric:.3f}x"]
    )


def _line(row: dict[str, Any]) -> str:
    return (
        f"| {row['network']} | {row['ort_ms']:.2f} | {row['tuned_ms']:.2f} | "
        f"{row['speedup']:.3f}x | {row['low']:.3f} to {row['high']:.3f} ({row['pairs']} pairs) | "
        f"{row['kernels']} | {row['tuning_s']:.0f} | {row['max_abs_err']:.2g} |"
    )


if __name__ == "__main__":
    sys.exit(main())
