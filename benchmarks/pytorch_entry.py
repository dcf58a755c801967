"""What ONNX Runtime alone brings over eager PyTorch, and what tuning adds to it.

    python benchmarks/pytorch_entry.py                       # about seven minutes, quiet machine
    python benchmarks/pytorch_entry.py --smoke               # does everything work
    python benchmarks/pytorch_entry.py --networks mlp --budget 120 --inductor
    python benchmarks/pytorch_entry.py --write-docs          # the table from the results

Needs the extras `engine` and `torch`, and timm and transformers for their networks; those of a
library that is not installed are left out, with a line that says so. Weights are seeded. A network
is computed by eager PyTorch, by what `aoe.torch.optimize` makes of it without time to search (ONNX
Runtime through the same entry) and with it, and with `--inductor` by `torch.compile`.
They take turns in one process, with the same threads, in an order that turns from round to round;
the first third of a turn is warm-up, its figure the median of the other calls. A ratio is the
median over the rounds of the ratios within a round, with the interval of a median.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from comparison.files import write_document, write_whole
from comparison.results import environment

from aoe.bank.built_in import VARIABLE as BUILT_IN_BANK
from aoe.measurement import SpeedupEstimate, estimate_speedup
from aoe.measurement.pairs import PairedSamples

_HERE = Path(__file__).resolve().parent
_RESULTS = _HERE / "results" / "pytorch_entry.json"
_PAGE = _HERE.parent / "docs" / "pytorch.md"
BEGIN, END = "<!-- pytorch entry: begin -->", "<!-- pytorch entry: end -->"
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


def main(words: list[str] | None = None) -> int:
    """Measure and write the results, or write the table of the documentation."""
    arguments = _arguments(words)
    if arguments.write_docs:
        document = json.loads(arguments.results.read_text())
        write_whole(_PAGE, filled(_PAGE.read_text(), table(document)))
        return 0
    records = []
    with tempfile.TemporaryDirectory(prefix="pytorch_entry_") as scratch:
        for name in arguments.networks:
            try:
                records.append(_measured(name, arguments, Path(scratch)))
            except ModuleNotFoundError as error:
                _say(f"{name}: left out, {error.name} is not installed")
    here = {**environment(), "libraries": {name: _version(name) for name in _LIBRARIES}}
    settings = {key: getattr(arguments, key) for key in ("rounds", "turn", "budget", "threads")}
    document = {"machine": here, "settings": settings, "networks": records}
    write_document(arguments.results, document)
    print(table(document))
    return 0


def _arguments(words: list[str] | None) -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--threads", type=int, default=cores, help="default: all cores")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=0.4, help="seconds of one turn")
    parser.add_argument("--budget", type=float, default=60.0, help="tuning_time_limit, seconds")
    parser.add_argument("--inductor", action="store_true", help="torch.compile takes turns too")
    parser.add_argument("--results", type=Path, default=_RESULTS)
    parser.add_argument("--smoke", action="store_true", help="the MLP, two short rounds")
    parser.add_argument("--write-docs", action="store_true", help="docs/pytorch.md from results")
    arguments = parser.parse_args(words)
    if arguments.smoke:
        arguments.networks, arguments.rounds, arguments.turn = ["mlp"], 2, 0.02
        arguments.budget = min(arguments.budget, 5.0)
        if arguments.results == _RESULTS:
            arguments.results = Path(tempfile.gettempdir()) / "pytorch_entry_smoke.json"
    if arguments.rounds < 1 or arguments.turn <= 0 or not 1 <= arguments.threads <= cores:
        parser.error(f"--rounds at least 1, --turn above 0, --threads 1 to {cores}")
    return arguments


def _measured(name: str, arguments: argparse.Namespace, scratch: Path) -> Record:
    import torch

    import aoe.torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    module, args, kwargs = CASES[name].make()
    module.eval()
    modules = {EAGER: module}
    os.environ[BUILT_IN_BANK] = "off"  # what is measured is what a run finds by itself
    began_s = time.monotonic()
    with torch.no_grad():
        for way, limit in ((UNTUNED, 0.0), (TUNED, arguments.budget)):
            _say(f"{name}: {way}")
            modules[way] = aoe.torch.optimize(
                module,
                args,
                example_kwargs=kwargs,
                bank=scratch / f"bank_{way}",
                tuning_time_limit=limit,
                core_num=arguments.threads,
            )
        if arguments.inductor:
            modules[INDUCTOR] = torch.compile(module)
        prepared_s = time.monotonic() - began_s
        ways = {way: (lambda m=m: m(*args, **kwargs)) for way, m in modules.items()}
        _say(f"{name}: {arguments.rounds} rounds")
        rounds = take_turns(ways, rounds=arguments.rounds, turn_s=arguments.turn)
    fallbacks = aoe.torch.fallbacks(modules[TUNED]) + aoe.torch.fallbacks(modules[UNTUNED])
    return {
        "network": name,
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


def filled(page: str, text: str) -> str:
    """Return a page with its marked place filled.

    Raises:
        ValueError: it has no such place.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for the table (expected {BEGIN} and {END})")
    return f"{before}{BEGIN}\n{text}{END}{after}"


def table(document: Mapping[str, Any]) -> str:
    """Return the results as Markdown."""
    machine, settings = document["machine"], document["settings"]
    libraries = ", ".join(f"{k} {v}" for k, v in machine["libraries"].items() if v)
    has_inductor = any(INDUCTOR in record["ms"] for record in document["networks"])
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
        *(_line(record, has_inductor) for record in document["networks"]),
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


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
