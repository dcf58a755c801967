"""Networks as quantisers write them: ONNX Runtime, the engine and OpenVINO on the same files.

    python benchmarks/quantised.py                        # 12 networks, every form: hours
    python benchmarks/quantised.py resnet18 bert6 --forms s8 u8
    python benchmarks/quantised.py --smoke

Each network is written as `quantize_static` does by default, int8 activations (s8), with uint8
activations (u8), with QLinear operators (qoperator), by `quantize_dynamic` (dynamic), in float16
and, where it is installed, by nncf; float32 is the network itself, tuned with int8 allowed, beside
the quantised files. One thread; every runtime has a process of its own and they take turns, as in
`peers.py`, with ONNX Runtime on the float32 file as one of them. Results are compared with torch
in float64. Needs `pip install -r benchmarks/requirements-peers.txt`.
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from comparison.experiment import Experiment, Option, run_experiment
from comparison.prepared import MODEL, PreparationError, PreparedNetwork
from comparison.quantised_tables import FLOAT32, every_network, means
from comparison.rounds import Comparison, RoundSettings, compare
from comparison.steps import Steps
from runtimes.registry import BASELINE, PEERS, with_precision
from runtimes.runtime import Peer

NETWORKS = (
    *("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0"),
    *("yolo_silu", "unet2d", "bert6", "minilm6", "vit_small", "hifigan", "ds_cnn"),
)
_THREADS = 1
_ORT, _ENGINE, _OPENVINO = PEERS[BASELINE], PEERS["engine"], PEERS["openvino-f32"]
_ON_THE_FILE = {
    BASELINE: _ORT,
    "ort-float32": replace(_ORT, title="ORT on float32", model=f"../{MODEL}"),
    "engine": _ENGINE,
    # quantised operators are computed in integers, the others in float32
    "openvino-f32": replace(_OPENVINO, title="OpenVINO"),
}
_U8 = f"u8/{MODEL}"
PEERS_OF_FORM: Mapping[str, Mapping[str, Peer]] = MappingProxyType(
    {
        **dict.fromkeys(("s8", "u8", "qoperator", "dynamic", "nncf"), _ON_THE_FILE),
        "float16": _ON_THE_FILE
        | dict([with_precision("allow_mix_precision_bf16")])
        | {"openvino": PEERS["openvino"]},
        FLOAT32: {
            BASELINE: _ORT,
            "engine": _ENGINE,
            **dict([with_precision("allow_mix_precision_int8")]),
            "ort-u8": replace(_ORT, title="ORT on u8", model=_U8),
            "openvino-u8": replace(_OPENVINO, title="OpenVINO on u8", model=_U8),
            "openvino-f32": _OPENVINO,
        },
    }
)
"""What is compared on the file of a form, ONNX Runtime on this file first."""


def measure(name: str, steps: Steps, given: Namespace) -> None:
    """Measure a network in every form asked for."""
    settings = RoundSettings(rounds=given.rounds, turn_s=given.turn, budget_s=given.budget)
    for form in given.forms:
        steps.once(f"{name}, {form}", partial(_measured, name, form, settings, steps, given))


def _measured(
    name: str, form: str, settings: RoundSettings, steps: Steps, given: Namespace
) -> Mapping[str, object]:
    try:
        network = PreparedNetwork.make(name, given.work / name)
        if form == FLOAT32:
            network.written_as("u8")
        else:
            network = network.written_as(form)
    except PreparationError as error:
        unprepared = {"network": name, "threads": _THREADS, "settings": {}, "peers": {}}
        return {**unprepared, "form": form, "failure": f"cannot be written: {error}"}
    peers = PEERS_OF_FORM[form]
    engine = steps.document["environment"]["engine"]
    comparison = Comparison(
        network=network,
        threads=_THREADS,
        peers=peers,
        versions={who: engine for who, peer in peers.items() if peer.has_budget},
        roof=None,
    )
    say = partial(_say, f"{name}, {form}")
    return {**compare(comparison, settings, say), "form": form}


def _form(text: str) -> str:
    if text not in PEERS_OF_FORM:
        raise ArgumentTypeError(f"got {text}, expected {', '.join(PEERS_OF_FORM)}")
    return text


def _say(where: str, text: str) -> None:
    print(f"{where}: {text}", file=sys.stderr, flush=True)


EXPERIMENT = Experiment(
    name="quantised",
    about=__doc__,
    measure=measure,
    cases=NETWORKS,
    usual=NETWORKS,
    options={
        "forms": Option(default=tuple(PEERS_OF_FORM), type=_form, help=", ".join(PEERS_OF_FORM)),
        "rounds": Option(default=7, help="turns of each runtime"),
        "turn": Option(default=0.5, help="seconds of a turn"),
        "budget": Option(default=120.0, help="seconds of each tuning"),
    },
    settings=lambda given: {"turn": given.turn, "budget": given.budget, "rounds": given.rounds},
    short=means,
    whole=every_network,
    page="quantised.md",
    smoke=(("ds_cnn",), {"forms": ("s8", "dynamic"), "rounds": 2, "turn": 0.02, "budget": 5.0}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
