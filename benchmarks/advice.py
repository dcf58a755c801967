"""Advice on models with a planted problem, and on sound ones: is it found, does the claim hold?

    python benchmarks/advice.py --output DIR [--prepared DIR] [--planted ...] [--sound ...]
    python benchmarks/advice.py --output DIR --write-docs      # docs/advise.md of what is there

Each planted model (`planted_models.py`) is advised on with its action alone, each sound
one (`SOUND`, networks of the suite against the peers) with the actions about most lost time.
Every gain that is claimed is tried again without the engine's measuring: model and copy run in
processes of their own, which take turns while the other one is stopped, three pairs of processes
with six turns each; a claim holds if the median of the ratios of these turns is above 1 again.
`advice.json` in the output directory has a record for each model; a second call goes on with what
is not there. Idle, 2 cores: about 20 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import tests_path  # noqa: F401
from comparison.files import write_document
from comparison.prepared import INPUTS, MODEL, PreparedNetwork
from comparison.processes import RuntimeProcess
from comparison.tables import table_row, write_between
from planted_models import PLANTED
from runtimes.registry import BASELINE, PEERS

from aoe.advice.actions import ACTIONS
from aoe.advice.run import ModelAdvice, advise_file
from aoe.advice.threads import THREADS_ACTION
from aoe.advice.trying import TrialVerdict, TriedAction
from aoe.device.protocol import Device
from aoe.device.registry import default_device
from aoe.entry.onnx_file import load_onnx
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.preparation import prepared
from aoe.ort.inputs import MADE_UP
from aoe.ort.static_shapes import infer_tensors
from aoe.profiling.run import ProfileSettings

SOUND = (
    *(
        "resnet18",
        "mobilenet_v2",
        "light_squeezenet",
        "light_zfnet512",
        "light_alexnet",
        "vit_small",
    ),
    *("bert6", "unet2d", "espcn", "whisper_tiny_encoder", "lstm_tagger", "deeplab_head"),
)
"""Twelve networks nobody has planted anything in, of several kinds, the quick ones of each."""
PAGE = Path(__file__).resolve().parent.parent / "docs" / "advise.md"
BEGIN, END = "<!-- advice: begin -->", "<!-- advice: end -->"
_PROCESSES, _TURNS, _TURN_S = 3, 6, 0.25
_MOST_ON_SOUND = 4

Record = dict[str, Any]
Again = Callable[[Path, ModelAdvice, TriedAction], list[float]]
"""Returns ratios of turns, model over copy, of an action a gain is claimed of."""


def main(words: Sequence[str] | None = None, page: Path = PAGE) -> int:
    """Measure what is not there yet, keep it, print the tables.

    Args:
        words: Of the command line.
        page: Where the tables go, if that is asked for.
    """
    arguments = _arguments(words)
    file: Path = arguments.output.resolve() / "advice.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    records = json.loads(file.read_text())["records"] if file.exists() else []
    if not arguments.write_docs:
        done = {(one["set"], one["model"]) for one in records}
        for job in _jobs(arguments, file.parent):
            if (job.which, job.name) not in done:
                records.append(advised(job, try_again))
                write_document(file, _document(records))
                print(_line(records[-1]), file=sys.stderr, flush=True)
    text = tables(records, json.loads(file.read_text())["machine"])
    if arguments.write_docs:
        write_between(page, BEGIN, END, text)
    print(text)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model to be advised on.

    Attributes:
        which: `planted` or `sound`.
        name: Of the model.
        file: The model.
        most: Actions that are tried at most.
        actions: Names of those; none for all.
    """

    which: str
    name: str
    file: Path
    most: int
    actions: tuple[str, ...] = ()


def advised(job: Job, again: Again, advise: Callable[..., ModelAdvice] = advise_file) -> Record:
    """Return what was found in a model, and what became of each claim when it was tried again."""
    began_s = time.monotonic()
    settings = ProfileSettings(model=job.file, counts=False, fusion=True, env=os.environ)
    advice = advise(settings, most=job.most, actions=job.actions)
    claims = [
        {
            "action": one.action,
            "claimed": round(one.estimate.median, 4),
            "low": round(one.estimate.low, 4),
            "again": [round(ratio, 4) for ratio in again(job.file, advice, one)],
        }
        for one in advice.tried
        if one.verdict is TrialVerdict.GAIN and one.estimate is not None
    ]
    record: Record = {
        "set": job.which,
        "model": job.name,
        "model_us": round(advice.profile.model_us, 1),
        "tried": {one.action: one.verdict.value for one in advice.tried},
        "claims": claims,
        "seconds": round(time.monotonic() - began_s, 1),
    }
    if job.which == "planted":
        record |= _found(job.name, advice)
    return record


def _found(name: str, advice: ModelAdvice) -> Record:
    planted = PLANTED[name]
    causes = {
        found.cause
        for low in advice.low
        for found in low.causes
        if planted.op_type in ("", low.operator.op_type)
    }
    tried = {one.action: one for one in advice.tried}
    own = tried.get(planted.action)
    speedup = own.estimate.median if own is not None and own.estimate is not None else None
    return {
        "cause": planted.cause,
        "cause_found": planted.cause is None or planted.cause in causes,
        "action": planted.action,
        "action_tried": not planted.action or own is not None,
        "speedup": None if speedup is None else round(speedup, 4),
    }


# ---- a claim, tried again ----


def try_again(file: Path, advice: ModelAdvice, claimed: TriedAction) -> list[float]:
    """Return ratios of turns of a model and its copy, each in processes of its own."""
    folder = file.parent / f"again-{claimed.action}"
    device = default_device()
    threads = advice.profile.threads
    best = advice.profile.best_threads if claimed.action == THREADS_ACTION else threads
    both = both_models(file, claimed.action, device, threads)
    networks = [
        network_of(f"{side}", folder / side, proto)
        for side, proto in zip(("model", "copy"), both, strict=True)
    ]
    ratios: list[float] = []
    for number in range(_PROCESSES):
        with ExitStack() as stack:
            sides = [
                stack.enter_context(
                    RuntimeProcess(
                        "measure",
                        PEERS[BASELINE],
                        network,
                        folder=folder / f"{network.name}-{number}",
                        settings={"threads": count, "budget_s": 0},
                    )
                )
                for network, count in zip(networks, (threads, best or threads), strict=True)
            ]
            ratios += _taken_turns(sides)
    return ratios


def _taken_turns(sides: Sequence[RuntimeProcess]) -> Iterator[float]:
    for side in sides:
        side.wait_ready()
        side.wait_ready()  # first that it is loaded, then that its results are saved
        side.pause()
    for turn in range(_TURNS):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        took = {at: sides[at].take_turn(_TURN_S)["median_us"] for at in order}
        yield took[0] / took[1]


def both_models(
    file: Path, action: str, device: Device, threads: int
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return what was compared: the model, or what stands in for it, and the copy."""
    model = prepared(load_onnx(file, {}).proto)
    if action == THREADS_ACTION:
        return model, model
    tensors = infer_tensors(model, device.open_session)
    graph = ModelGraph(model, tensors, block=device.channel_block())
    target = device.describe(threads)
    found = [one for kind in ACTIONS for one in kind.propose(graph, target)]
    proposal = next(one for one in found if one.action == action)
    return proposal.baseline or model, proposal.edited


def network_of(name: str, folder: Path, proto: onnx.ModelProto) -> PreparedNetwork:
    """Return a network the processes of the suite run; inputs are made up as those of advice."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, folder / MODEL)
    session = ort.InferenceSession(str(folder / MODEL), providers=["CPUExecutionProvider"])
    np.savez(folder / INPUTS, **MADE_UP.first(session))
    return PreparedNetwork(name=name, folder=folder, facts={})


# ---- what is run, what is printed ----


def _jobs(arguments: argparse.Namespace, output: Path) -> Iterator[Job]:
    for name in arguments.planted:
        planted = PLANTED[name]
        folder = output / "planted" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MODEL).write_bytes(planted.build().SerializeToString())
        actions = (planted.action,) if planted.action else ()
        yield Job(
            which="planted",
            name=name,
            file=folder / MODEL,
            most=1 if planted.action else 0,
            actions=actions,
        )
    for name in arguments.sound:
        folder = output / "sound" / name
        folder.mkdir(parents=True, exist_ok=True)
        given = arguments.prepared
        found = given / name / MODEL if given else PreparedNetwork.make(name, folder).model
        copy = folder / MODEL
        if found != copy:
            copy.write_bytes(found.read_bytes())
        yield Job(which="sound", name=name, file=copy, most=arguments.most)


def _document(records: Sequence[Record]) -> Mapping[str, Any]:
    target = default_device().describe(None)
    machine = {
        "cpu_model": target.cpu_model,
        "threads": target.core_num,
        "onnxruntime": ort.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
    return {"machine": machine, "records": list(records)}


def holds(claim: Mapping[str, Any]) -> bool:
    """True if a claim shows again; one that could not be tried again does not."""
    return bool(claim["again"]) and median(claim["again"]) > 1


def tables(records: Sequence[Record], machine: Mapping[str, Any]) -> str:
    """Return what was found and what holds, as Markdown."""
    planted = [one for one in records if one["set"] == "planted"]
    sound = [one for one in records if one["set"] == "sound"]
    causes = [one for one in planted if one["cause"]]
    actions = [one for one in planted if one["action"]]
    taken = (
        f"{machine['cpu_model']}, {machine['threads']} threads, ONNX Runtime "
        f"{machine['onnxruntime']}, {machine['date']}, `python benchmarks/advice.py`."
    )
    found = (
        f"Planted problems: {sum(one['cause_found'] for one in causes)} of {len(causes)} causes "
        f"found, {sum(one['action_tried'] for one in actions)} of {len(actions)} actions tried."
    )
    lines = [
        taken,
        "",
        found,
        "",
        table_row(("planted model", "cause", "action", "speed-up", "claimed", "tried again")),
        table_row(("---",) * 6),
        *(table_row(_planted_row(one)) for one in planted),
        "",
        _sound_line(sound),
        "",
        table_row(("sound model", "actions tried", "claimed", "tried again", "does not hold")),
        table_row(("---",) * 5),
        *(table_row(_sound_row(one)) for one in sound),
        "",
    ]
    return "\n".join(lines)


def _planted_row(one: Record) -> Sequence[str]:
    cause = f"{one['cause']}: {'found' if one['cause_found'] else '**missed**'}"
    return (
        one["model"],
        cause if one["cause"] else "-",
        (one["action"] or "-") if one["action_tried"] else f"{one['action']}: **missed**",
        "-" if one["speedup"] is None else f"{one['speedup']:.3f}x",
        "yes" if one["claims"] else "no",
        _again(one["claims"]),
    )


def _sound_row(one: Record) -> Sequence[str]:
    claims = one["claims"]
    claimed = ", ".join(f"{claim['action']} {claim['claimed']:.3f}x" for claim in claims)
    wrong = ", ".join(claim["action"] for claim in claims if not holds(claim))
    return (one["model"], str(len(one["tried"])), claimed or "-", _again(claims), wrong or "-")


def _again(claims: Sequence[Mapping[str, Any]]) -> str:
    found = (f"{median(one['again']):.3f}x" if one["again"] else "failed" for one in claims)
    return ", ".join(found) or "-"


def _sound_line(sound: Sequence[Record]) -> str:
    tried = sum(len(one["tried"]) for one in sound)
    claims = [claim for one in sound for claim in one["claims"]]
    wrong = sum(not holds(claim) for claim in claims)
    share = f", {wrong / len(claims):.0%} of the claims" if claims else ""
    return (
        f"{len(sound)} sound models: {tried} actions tried, {len(claims)} gains claimed, "
        f"{wrong} of them false{share}."
    )


def _line(record: Record) -> str:
    claims = ", ".join(
        f"{one['action']} {one['claimed']:.3f}x, again {_again([one])}" for one in record["claims"]
    )
    found = "" if record.get("cause_found", True) else "; CAUSE NOT FOUND"
    missed = "" if record.get("action_tried", True) else "; ACTION NOT TRIED"
    name = f"{record['set']} {record['model']}"
    return f"{name}: {claims or 'nothing claimed'}{found}{missed} ({record['seconds']:.0f} s)"


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--prepared", type=Path, metavar="DIR", help="networks made before")
    parser.add_argument("--planted", nargs="*", default=list(PLANTED), choices=[*PLANTED])
    parser.add_argument("--sound", nargs="*", default=list(SOUND), metavar="NETWORK")
    parser.add_argument("--most", type=int, default=_MOST_ON_SOUND, metavar="N")
    parser.add_argument("--write-docs", action="store_true")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
