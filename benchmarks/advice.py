"""Advice on models with a planted problem, and on sound ones: is it found, does the claim hold?

    python benchmarks/advice.py                   # idle, 2 cores: about 20 minutes
    python benchmarks/advice.py constant bert6    # some models
    python benchmarks/advice.py --write-docs      # docs/advise.md of the results

Each planted model (`planted_models.py`) is advised on with its action alone, each sound
one (`SOUND`, networks of the suite against the peers) with the actions about most lost time.
Every gain that is claimed is tried again without the engine's measuring: model and copy run in
processes of their own, which take turns while the other one is stopped, three pairs of processes
with six turns each; a claim holds if the median of the ratios of these turns is above 1 again.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import tests_path  # noqa: F401
from comparison.experiment import Experiment, Option, run_experiment
from comparison.prepared import INPUTS, MODEL, PreparedNetwork
from comparison.processes import RuntimeProcess
from comparison.rounds import RoundSettings, interleaved
from comparison.steps import Steps
from comparison.tables import table_row
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
_PROCESSES = 3
_ROUNDS = RoundSettings(rounds=6, turn_s=0.25, budget_s=0)

Record = dict[str, Any]
Again = Callable[[Path, ModelAdvice, TriedAction], list[float]]
"""Returns ratios of turns, model over copy, of an action a gain is claimed of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model to be advised on."""

    which: str  # `planted` or `sound`
    name: str  # Of the model
    file: Path  # The model
    most: int  # Actions that are tried at most
    actions: tuple[str, ...] = ()  # Names of those; none for all


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
            sides = {
                network.name: stack.enter_context(
                    RuntimeProcess(
                        "measure",
                        PEERS[BASELINE],
                        network,
                        folder=folder / f"{network.name}-{number}",
                        settings={"threads": count, "budget_s": 0},
                    )
                )
                for network, count in zip(networks, (threads, best or threads), strict=True)
            }
            for side in sides.values():
                side.wait_ready()
                side.wait_ready()  # first that it is loaded, then that its results are saved
                side.pause()
            turns = interleaved(sides, _ROUNDS, sys.stderr.write)
        model_us, copy_us = (turns[name]["median_us"] for name in ("model", "copy"))
        ratios += [one / other for one, other in zip(model_us, copy_us, strict=True)]
    return ratios


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


def measure(name: str, steps: Steps, given: Namespace) -> None:
    """Advise on a model and try its claims again, unless that is done."""
    steps.once(name, lambda: advised(_job(name, given), try_again))


def _job(name: str, given: Namespace) -> Job:
    planted = PLANTED.get(name)
    folder: Path = given.work / name
    if planted is None:
        file = PreparedNetwork.make(name, folder).model
        return Job(which="sound", name=name, file=file, most=given.most)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / MODEL
    file.write_bytes(planted.build().SerializeToString())
    actions = (planted.action,) if planted.action else ()
    return Job(which="planted", name=name, file=file, most=len(actions), actions=actions)


def holds(claim: Mapping[str, Any]) -> bool:
    """True if a claim shows again; one that could not be tried again does not."""
    return bool(claim["again"]) and median(claim["again"]) > 1


def tables(document: Mapping[str, Any]) -> str:
    """Return what was found and what holds, as Markdown."""
    here = document["environment"]
    records = [{"model": name, **record} for name, record in document["steps"].items()]
    planted = [one for one in records if one["set"] == "planted"]
    sound = [one for one in records if one["set"] == "sound"]
    causes = [one for one in planted if one["cause"]]
    actions = [one for one in planted if one["action"]]
    taken = (
        f"{here['cpu']}, {here['cores']} threads, ONNX Runtime {here['versions']['onnxruntime']}, "
        f"{document['date']}, `python benchmarks/advice.py`."
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


EXPERIMENT = Experiment(
    name="advice",
    about=__doc__,
    measure=measure,
    cases=(*PLANTED, *SOUND),
    usual=(*PLANTED, *SOUND),
    options={"most": Option(default=4, help="actions tried on a sound model")},
    short=lambda document, _: tables(document),
    page="advise.md",
    smoke=(("constant", "powers"), {}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
