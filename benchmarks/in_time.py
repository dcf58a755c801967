"""What a limit of time brings: a tuning a network and limit, read by fresh processes beside others.

    python benchmarks/in_time.py --smoke
    python benchmarks/in_time.py resnet18 espcn                    # these; the others another day
    python benchmarks/in_time.py PATH/model.onnx --limits 20 60
    python benchmarks/in_time.py --builds VENV/bin/python          # another build beside this one
    python benchmarks/in_time.py --precision_mode allow_mix_precision_bf16 --results FILE

Each network is tuned with each limit into an empty bank with an empty cache of kernels, on one
thread, in a process of its own. Then ONNX Runtime, the tuned model and OpenVINO (where it is
installed; in float32, unless a lower precision is allowed: then in the one that it chooses) run in
turns, each time in a fresh process, as in `outside.py`. Every tuning is
kept as soon as it is read: what is named again goes on where it was ended, and what another build
has tuned is tuned anew once the sources of that build are others. A network is one of the suite
(needs torch and onnxscript), or a file. The lines behind the table are over all there is.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from comparison.experiment import Experiment, Option, run_experiment
from comparison.prepared import PreparationError, PreparedNetwork
from comparison.results import engine_digest
from comparison.steps import CommandError, Steps, where_measured
from comparison.tables import table_row
from networks.registry import NETWORKS
from outside import OPENVINO, OPENVINO_DEFAULT, holds, tuned_and_read

USUAL = (
    *("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "ghostnet"),
    *("regnety_008", "convnext_tiny", "vit_small", "swin_tiny", "mobilevit_s", "bert6", "minilm6"),
    *("yolo_silu", "unet2d", "unet3d", "espcn", "srvgg", "hifigan", "whisper_tiny_encoder"),
    *("llama", "llama_cached", "dlrm", "mobileone_s1", "convmixer_1024", "mixer_small"),
    *("pvt_v2_b1", "poolformer_s12"),
)
_OWN = "this"
_FIND_ENGINE = "from importlib.util import find_spec; print(find_spec('aoe').origin)"
_NEARLY = 0.95
"""Of the gain with the longest limit."""
_SEVERAL = 2


def measure(name: str, steps: Steps, given: Namespace) -> None:
    """Tune a network with every limit by every build, and read what comes of it."""
    file = _file(name, given.work)
    options = [f"--precision_mode={given.precision_mode}"] if given.precision_mode else []
    runtimes = [OPENVINO_DEFAULT if options else OPENVINO]
    if importlib.util.find_spec(OPENVINO) is None:
        runtimes = []
    for limit_s in given.limits:
        for build, python in _builds(given.builds).items():
            step = f"{_label(name)} {limit_s:g} {build}"
            tuned = partial(tuned_and_read, file, limit_s, given.rounds, python=python)
            work = partial(tuned, runtimes=runtimes, options=options)
            steps.once(step, work, engine="" if build == _OWN else _digest(python))


def _file(name: str, work: Path) -> Path:
    if name not in NETWORKS:
        return Path(name)
    try:
        return PreparedNetwork.make(name, work / name).model
    except PreparationError as error:
        raise CommandError(f"{name} cannot be written: {error}") from error


def _label(name: str) -> str:
    file = Path(name)
    return file.parent.name if file.stem == "model" else file.stem


def _builds(others: Sequence[str]) -> dict[str, str]:
    """Return the interpreters by the name of their build: of others, that of their environment.

    Raises:
        SystemExit: two of one name; the results of one would stand for both.
    """
    builds = {_OWN: sys.executable}
    for one in others:
        name = "_".join(Path(one).parent.parent.name.split())
        if name in builds:
            sys.exit(f"--builds: two builds of one name (got {name}, expected another folder)")
        builds[name] = one
    return builds


def _digest(python: str) -> str:
    """Return the digest of the engine that an interpreter has.

    Raises:
        CommandError: it has none.
    """
    done = subprocess.run(
        [python, "-P", "-c", _FIND_ENGINE], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise CommandError(f"{python} has no engine")
    return engine_digest(Path(done.stdout.strip()).parent.parent)


def table(document: Mapping[str, Any]) -> str:
    """Return every tuning as Markdown, and what all of them come to."""
    steps = document["steps"]
    allowed = document["options"].get("precision_mode")
    precision = f" `--precision_mode={allowed}`, OpenVINO as it comes." if allowed else ""
    lines = [
        f"`in_time.py`, one thread.{precision} {where_measured(document)}",
        "",
        "| network | limit s | build | took s | printed | outside | holds | OpenVINO | won, used |",
        f"|{'---|' * 9}",
    ]
    for key, row in steps.items():
        name, limit, build = key.rsplit(maxsplit=2)
        told = "{speedup:.2f} ({speedup_low:.2f} to {speedup_high:.2f})".format(**row)
        read = "{outside:.2f} ({outside_low:.2f} to {outside_high:.2f})".format(**row)
        peer = _openvino(row)
        cells = [name, limit, build, f"{row['seconds']:.0f}"]
        cells += ["unchanged" if row["unchanged"] else told, read]
        cells += ["yes" if holds(row) else "**no**", f"{peer:.2f}" if peer else "-"]
        lines.append(table_row([*cells, f"{row['won']}, {row['used']}"]))
    return "\n".join([*lines, "", *_summary(steps)]) + "\n"


def _openvino(row: Mapping[str, Any]) -> float | None:
    others = row["others"]
    found: float | None = others.get(OPENVINO, others.get(OPENVINO_DEFAULT))
    return found


def _summary(steps: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each build and limit, and one on the time to most of the gain."""
    groups: dict[tuple[str, float], dict[str, Mapping[str, Any]]] = {}
    for key, row in steps.items():
        name, limit, build = key.rsplit(maxsplit=2)
        groups.setdefault((build, float(limit)), {})[name] = row
    for (build, limit_s), rows in sorted(groups.items()):
        found = rows.values()
        peers = [(one["outside"], _openvino(one)) for one in found]
        below = [f"{sum(own < peer for own, peer in peers if peer)} below OpenVINO"]
        empty = sum(one["unchanged"] and one["won"] >= _SEVERAL for one in found)
        yield (
            f"- {build}, {limit_s:g} s, {len(rows)} networks: {_mean(found)} outside, "
            f"{sum(map(holds, found))} inside of what was printed, {empty} unchanged though "
            f"{_SEVERAL} kernels or more won alone, "
            f"{', '.join(below) if any(peer for _, peer in peers) else 'OpenVINO not measured'}"
        )
    for build in dict.fromkeys(build for build, _ in sorted(groups)):
        limits = sorted(limit for one, limit in groups if one == build)
        shares = list(_shares({limit: groups[build, limit] for limit in limits}))
        if shares:
            yield (
                f"- {build}: {_NEARLY:.0%} of the gain of {limits[-1]:g} s after "
                f"{geometric_mean(shares):.2f} of that time ({len(shares)} networks)"
            )


def _mean(rows: Collection[Mapping[str, Any]]) -> str:
    """Return the mean outside, and that with 1 for each network whose file is what it was."""
    read = geometric_mean(one["outside"] for one in rows)
    true = geometric_mean(1.0 if one["unchanged"] else one["outside"] for one in rows)
    is_any = any(one["unchanged"] for one in rows)
    return f"{read:.3f}x" + (f" ({true:.3f}x with the unchanged ones as 1)" if is_any else "")


def _shares(rows: Mapping[float, Mapping[str, Mapping[str, Any]]]) -> Iterator[float]:
    """Yield, for each network with all limits that gains, the least that has nearly all of it.

    As a share of the longest limit. What a network reads that was left unchanged is noise.
    """
    longest = max(rows)
    for name in rows[longest] if len(rows) > 1 else ():
        if all(name in each for each in rows.values()):
            gains = {limit: each[name]["outside"] - 1 for limit, each in rows.items()}
            if gains[longest] > 0 and not rows[longest][name]["unchanged"]:
                enough = _NEARLY * gains[longest]
                yield min(limit for limit, gain in gains.items() if gain >= enough) / longest


EXPERIMENT = Experiment(
    name="in_time",
    about=__doc__,
    measure=measure,
    cases=None,
    usual=USUAL,
    options={
        "limits": Option(default=(20.0, 60.0, 300.0), type=float, help="seconds a run may take"),
        "rounds": Option(default=6, help="fresh processes of each side"),
        "builds": Option(default=(), type=str, help="interpreters of other builds of the engine"),
        "precision_mode": Option(default="", help="of every tuning, by default float32"),
    },
    settings=lambda given: {
        "rounds": given.rounds,
        **({"precision_mode": given.precision_mode} if given.precision_mode else {}),
    },
    short=lambda document, _: table(document),
    smoke=(("espcn",), {"limits": (20.0,), "rounds": 2}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
