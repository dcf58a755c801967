"""What ONNX Runtime alone brings over eager PyTorch, and what tuning adds to it.

    python benchmarks/pytorch_entry.py                       # about seven minutes, quiet machine
    python benchmarks/pytorch_entry.py --smoke               # does everything work
    python benchmarks/pytorch_entry.py mlp --budget 120 --inductor

Needs the extras `engine` and `torch`, and timm and transformers for their networks; those of a
library that is not installed are left out, with a line that says so. Weights are seeded. A network
is computed by eager PyTorch, by what `aoe.torch.optimize` makes of it without time to search (ONNX
Runtime through the same entry) and with it, and with `--inductor` by `torch.compile`.
They take turns in one process, with the same threads, in an order that turns from round to round;
the first third of a turn is warm-up, its figure the median of the other calls. A ratio is the
median over the rounds of the ratios within a round, with the interval of a median.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from comparison.experiment import Experiment, Option, run_experiment
from comparison.steps import Steps

from aoe.bank.built_in import VARIABLE as BUILT_IN_BANK
from aoe.measurement import SpeedupEstimate, estimate_speedup
from aoe.measurement.pairs import PairedSamples

EAGER, UNTUNED, TUNED, INDUCTOR = "eager", "untuned", "tuned", "inductor"
_LIBRARIES = ("torch", "onnxruntime", "timm", "transformers")
_LEAST_CALLS = 3

Record = dict[str, Any]
Way = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network and how it is called."""

    title: str
    make: Callable[[], tuple[Any, tuple[Any, ...], Mapping[str, Any]]]


def _mlp() -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    import torch
    from torch import nn

    layers = [nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(512, 10)), (torch.randn(64, 512),), {}


def _timm(name: str) -> Callable[[], tuple[Any, tuple[Any, ...], Mapping[str, Any]]]:
    def make() -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
        import timm
        import torch

        return timm.create_model(name), (torch.randn(1, 3, 224, 224),), {}

    return make


def _bert() -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=1000,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
    )
    tokens = torch.randint(0, 1000, (1, 128))
    return BertModel(config), (tokens,), {"use_cache": False}


CASES = {
    "mlp": Case(title="MLP, 64 x 512", make=_mlp),
    "bert": Case(title="BertModel, 4 layers of 256, 128 tokens", make=_bert),
    "resnet18": Case(title="ResNet-18 (timm), 224 x 224", make=_timm("resnet18")),
    "efficientnet_b0": Case(
        title="EfficientNet-B0 (timm), 224 x 224", make=_timm("efficientnet_b0")
    ),
}


def measure(name: str, steps: Steps, given: Namespace) -> None:
    """Measure a network, unless that is done or its library is missing."""
    try:
        steps.once(name, lambda: _measured(name, given))
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{name}: left out, {error.name} is not installed\n")


def _measured(name: str, given: Namespace) -> Record:
    import torch

    import aoe.torch

    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    module, args, kwargs = CASES[name].make()
    module.eval()
    modules = {EAGER: module}
    os.environ[BUILT_IN_BANK] = "off"  # what is measured is what a run finds by itself
    began_s = time.monotonic()
    with torch.no_grad(), tempfile.TemporaryDirectory(prefix="pytorch_entry_") as scratch:
        for way, limit in ((UNTUNED, 0.0), (TUNED, given.budget)):
            modules[way] = aoe.torch.optimize(
                module,
                args,
                example_kwargs=kwargs,
                bank=Path(scratch) / f"bank_{way}",
                tuning_time_limit=limit,
                core_num=given.threads,
            )
        if given.inductor:
            modules[INDUCTOR] = torch.compile(module)
        prepared_s = time.monotonic() - began_s
        ways = {way: (lambda m=m: m(*args, **kwargs)) for way, m in modules.items()}
        rounds = take_turns(ways, rounds=given.rounds, turn_s=given.turn)
    fallbacks = aoe.torch.fallbacks(modules[TUNED]) + aoe.torch.fallbacks(modules[UNTUNED])
    return {
        "title": CASES[name].title,
        "ms": rounds,
        "kernels": len(aoe.load(modules[TUNED].om_file).manifest.kernels),
        "prepared_s": round(prepared_s, 1),
        "fallbacks": dict(fallbacks),
    }


def take_turns(
    ways: Mapping[str, Way],
    *,
    rounds: int,
    turn_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the time of a call for each way, one figure a round, in milliseconds.

    Args:
        ways: What is measured.
        rounds: In each of them everybody has a turn.
        turn_s: Seconds of a turn; the first third of its calls is left out.
        clock: Seconds.
    """
    names = list(ways)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turned = number % len(names)
        for name in (*names[turned:], *names[:turned]):
            found[name].append(_turn(ways[name], turn_s, clock) * 1e3)
    return found


def _turn(way: Way, turn_s: float, clock: Callable[[], float]) -> float:
    samples: list[float] = []
    end = clock() + turn_s
    while len(samples) < _LEAST_CALLS or clock() < end:
        began = clock()
        way()
        samples.append(clock() - began)
    return median(samples[len(samples) // 3 :])


# ---- the table ----


def table(document: Mapping[str, Any]) -> str:
    """Return the results as Markdown."""
    machine, settings = document["environment"], document["options"]
    records = document["steps"].values()
    libraries = ", ".join(f"{k} {v}" for k, v in settings["libraries"].items() if v)
    has_inductor = any(INDUCTOR in record["ms"] for record in records)
    head = ["network", "eager ms", "ORT / eager", "tuned / ORT", "tuned / eager", "kernels"]
    if has_inductor:
        head.append("inductor / eager")
    facts = (
        f"`python benchmarks/pytorch_entry.py` on {machine['cpu']}, {settings['threads']} threads, "
        f"{libraries}; {settings['rounds']} rounds, `tuning_time_limit={settings['budget']:g}`. "
        "Each ratio says how many times as fast, with its 95 % interval."
    )
    lines = [
        facts,
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(_line(record, has_inductor) for record in records),
    ]
    return "\n".join(lines) + "\n"


def _line(record: Record, has_inductor: bool) -> str:
    ms = record["ms"]
    pairs = [(EAGER, UNTUNED), (UNTUNED, TUNED), (EAGER, TUNED)]
    cells = [record["title"], f"{median(ms[EAGER]):.2f}"]
    cells += [_ratio(ms[one], ms[other]) for one, other in pairs]
    cells.append(str(record["kernels"]))
    if has_inductor:
        cells.append(_ratio(ms[EAGER], ms[INDUCTOR]) if INDUCTOR in ms else "")
    return f"| {' | '.join(cells)} |"


def _ratio(slow: Sequence[float], fast: Sequence[float]) -> str:
    found: SpeedupEstimate = estimate_speedup(
        PairedSamples(baseline_us=tuple(slow), tuned_us=tuple(fast))
    )
    return f"{found.median:.2f}x ({found.low:.2f} to {found.high:.2f})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


EXPERIMENT = Experiment(
    name="pytorch_entry",
    about=__doc__,
    measure=measure,
    cases=CASES,
    usual=tuple(CASES),
    options={
        "threads": Option(default=len(os.sched_getaffinity(0)), help="default: all cores"),
        "rounds": Option(default=15),
        "turn": Option(default=0.4, help="seconds of one turn"),
        "budget": Option(default=60.0, help="tuning_time_limit, seconds"),
        "inductor": Option(default=False, help="torch.compile takes turns too"),
    },
    settings=lambda given: {
        **{name: getattr(given, name) for name in ("rounds", "turn", "budget", "threads")},
        "libraries": {name: _version(name) for name in _LIBRARIES},
    },
    short=lambda document, _: table(document),
    page="pytorch.md",
    smoke=(("mlp",), {"rounds": 2, "turn": 0.02, "budget": 5.0}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
