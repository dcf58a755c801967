"""Losses and gradients of published networks trained with kernels, beside eager's.

    python benchmarks/training_losses.py               # an hour, any machine: nothing is timed
    python benchmarks/training_losses.py --smoke       # does everything work
    python benchmarks/training_losses.py bert swin

Needs the extras `engine` and `torch`, timm and transformers; see `networks/published.py`. Every
kernel and every way of a convolution whose results are right is used, faster or not. Each network
has a process of its own, and the same weights, batches and masks of dropout each time.

Noise is what eager itself is off: the largest difference so far from float64 of the losses of eager
on one thread, on two, and six times from weights that differ by a rounding: small networks with
batch normalisation make 1e-7 of a weight 1e-3 of a loss within ten steps. Losses may be off
float64 by `LOSS_RATIO` times that. A gradient of the first step may be `GRADIENT_RATIO` times as
far from autograd in float64 as the worst of these trainings of eager. To both come some roundings
of the largest element.
"""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import inf, isnan
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from comparison.experiment import Experiment, Option, run_experiment
from comparison.steps import CommandError, Steps
from networks.published import PUBLISHED

from aoe.torch.modules.training.graphs import Choice, TrainingGraph

LOSS_RATIO, GRADIENT_RATIO = 8.0, 4.0
_ROUNDINGS = 16 * 2.0**-23
_SEEDS = (1, 2)  # Of the batch and of the masks of the first gradients
_ROUNDED = 6
"""Trainings from other roundings of the weights: a few in a hundred thousand decide which way a
ReLU goes, and with that, of which kind a training is."""
_CALLS = 3
"""The first tunes, the second compares, the third computes with kernels."""
Record = dict[str, Any]


def measure(name: str, steps: Steps, given: Namespace) -> None:
    """Train a network, unless that is done."""
    steps.once(name, lambda: _in_a_process(name, given.steps, given.work))


def _in_a_process(name: str, steps: int, work: Path) -> Record:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(proof, name, steps, work).result()
        except Exception as error:  # the other networks have their turn
            raise CommandError("".join(traceback.format_exception(error))) from error


def proof(name: str, steps: int, work: Path) -> Record:
    """Return how far a training with kernels is from one in float64, beside eager's distance.

    Args:
        name: Of a network.
        steps: Steps whose losses are compared.
        work: Folder of the bank and of compiled kernels.
    """
    import torch

    began_s = time.monotonic()
    torch.manual_seed(0)
    training = PUBLISHED[name][1]()
    one = Trained(training, steps)
    two = Trained(training, steps, threads=2)
    rounded = [Trained(_off_by_roundings(training, seed), steps) for seed in range(_ROUNDED)]
    eager = (one, two, *rounded)
    exact = Trained(_in_float64(training), steps)
    with _watched() as said:
        used = Every()
        backend = _backend(used, work / name)
        found = Trained(training, steps, wrap=partial(torch.compile, backend=backend))
    told = Counter(f"{each.category.__name__}: {each.message}" for each in said)
    return {
        "title": PUBLISHED[name][0],
        "losses": [one.losses[0], one.losses[-1]],
        **compared_losses(exact.losses, [each.losses for each in eager], found.losses),
        **compared_gradients(exact.gradients, [each.gradients for each in eager], found.gradients),
        "regions": len(used.outcomes),
        "used": dict(Counter(way for way, reason in used.outcomes if not reason)),
        "left": dict(Counter(reason for _, reason in used.outcomes if reason)),
        "warnings": dict(told),
        "seconds": round(time.monotonic() - began_s, 1),
    }


class Trained:
    """One training: gradients of its first step, and losses of all.

    Attributes:
        gradients: By the names of parameters.
        losses: In order.

    Args:
        training: The network; a copy is trained.
        steps: How many.
        threads: Of PyTorch.
        wrap: Makes what is called of the module.
    """

    def __init__(
        self,
        training: Any,
        steps: int,
        *,
        threads: int = 1,
        wrap: Callable[[Any], Any] = lambda module: module,
    ) -> None:
        import torch
        from networks.trained import losses

        torch.set_num_threads(threads)
        own = replace(training, module=deepcopy(training.module))
        module = wrap(own.module)
        untrained = deepcopy(own.module.state_dict())
        self.gradients: dict[str, Any] = {}
        for _ in range(_CALLS):
            own.module.load_state_dict(untrained)
            own.module.zero_grad()
            torch.manual_seed(_SEEDS[0])
            batch = own.draw()
            torch.manual_seed(_SEEDS[1])
            own.loss(module, batch).backward()
        for name, one in own.module.named_parameters():
            if one.grad is not None:
                self.gradients[name] = one.grad.clone()
        own.module.load_state_dict(untrained)
        optimizer = torch.optim.AdamW(own.module.parameters(), lr=1e-3)
        self.losses = losses(own, optimizer, steps, module=module)


def _in_float64(training: Any) -> Any:
    def draw() -> tuple[Any, ...]:
        batch = training.draw()
        return tuple(one.double() if one.is_floating_point() else one for one in batch)

    return replace(training, module=deepcopy(training.module).double(), draw=draw)


def _off_by_roundings(training: Any, seed: int) -> Any:
    """Return a training whose weights are the next numbers of float32, above or below."""
    import torch

    module = deepcopy(training.module)
    toward = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in module.parameters():
            up = torch.rand(one.shape, generator=toward) < 0.5
            one.copy_(torch.nextafter(one, torch.where(up, torch.inf, -torch.inf)))
    return replace(training, module=module)


def _backend(used: Any, folder: Path) -> Callable[..., Any]:
    from aoe.torch.modules.backend import aoe_backend

    (folder / "bank").mkdir(parents=True, exist_ok=True)
    options = {"bank": str(folder / "bank"), "cache_dir": str(folder / "kernels")}
    return partial(aoe_backend, train=partial(TrainingGraph, choice=used), options=options)


class Every(Choice):
    """Uses every kernel and every way of a convolution whose results are right.

    Attributes:
        outcomes: What computes each region, and why PyTorch does.
    """

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []

    def order(self, calls: Mapping[str, Any], arguments: Sequence[Any]) -> Sequence[str]:
        """Return the names of kernels before products, which PyTorch computes."""
        return sorted((name for name in calls if name), key=lambda name: name == "products")

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        """Use it."""
        return True

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        """Use it, and see that both run."""
        eager()
        compiled()
        return True

    def told(self, outcome: Any) -> None:
        """Keep what became of a region."""
        self.outcomes.append((outcome.way, outcome.reason))


@contextmanager
def _watched() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "The .grad attribute")  # which Dynamo looks at
        yield said


def compared_losses(
    exact: Sequence[float], eager: Sequence[Sequence[float]], found: Sequence[float]
) -> Record:
    """Return the largest differences from float64, and the largest share of the bound."""
    off = [
        max(abs(one - exact[at]) for one in rows)
        for at, rows in enumerate(zip(*eager, strict=True))
    ]
    so_far = list(accumulate(off, max))
    share = 0.0
    for at, loss in enumerate(found):
        bound = LOSS_RATIO * so_far[at] + _ROUNDINGS * abs(exact[at])
        own = abs(loss - exact[at]) / bound
        share = max(share, inf if isnan(own) else own)
    return {
        "eager_off": max(off),
        "off": max(abs(one - other) for one, other in zip(found, exact, strict=True)),
        "loss_share": round(share, 3),
    }


def compared_gradients(
    exact: Mapping[str, Any], eager: Sequence[Mapping[str, Any]], found: Mapping[str, Any]
) -> Record:
    """Return the largest share of the bound over the parameters, and whose it is."""
    if any(one.keys() != exact.keys() for one in (*eager, found)):
        return {"gradients": len(exact), "gradient_share": inf, "worst": "others are None"}
    largest = max(float(one.abs().max()) for one in exact.values())
    shares = {}
    for name, reference in exact.items():
        errors = [float((one[name].double() - reference).abs().max()) for one in (*eager, found)]
        roundings = _ROUNDINGS * float(reference.abs().max()) + 2.0**-24 * largest
        shares[name] = errors[-1] / (GRADIENT_RATIO * max(errors[:-1]) + roundings)
        if isnan(shares[name]) or found[name].stride() != eager[0][name].stride():
            shares[name] = inf
    worst = max(shares, key=shares.__getitem__)
    return {"gradients": len(exact), "gradient_share": round(shares[worst], 3), "worst": worst}


def table(document: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    options = document["options"]
    lines = [
        (
            f"`python benchmarks/training_losses.py`, {options['steps']} steps, "
            f"torch {options['torch']}, timm {options['timm']}, transformers "
            f"{options['transformers']}, {document['date']}. Off float64: the largest difference "
            "of a loss. Last columns: shares of the bounds, 1 would be the bound."
        ),
        "",
        "| network | by kernels | losses | eager off | kernels off | losses | gradients |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in document["steps"].values():
        first, last = one["losses"]
        cells = [
            one["title"],
            f"{sum(one['used'].values())} of {one['regions']}",
            f"{first:.2f} to {last:.2f}",
            f"{one['eager_off']:.1e}",
            f"{one['off']:.1e}",
            f"{one['loss_share']:.2f}",
            f"{one['gradient_share']:.2f} of {one['gradients']}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def is_passed(document: Mapping[str, Any]) -> bool:
    """True if all losses and gradients are within their bounds, and kernels computed some."""
    shares = ("loss_share", "gradient_share")
    found = document["steps"].values()
    return all(one["used"] and all(one[share] <= 1.0 for share in shares) for one in found)


def _settings(given: Namespace) -> dict[str, Any]:
    from importlib.metadata import version

    libraries = {name: version(name) for name in ("torch", "timm", "transformers")}
    return {"steps": given.steps, **libraries}


EXPERIMENT = Experiment(
    name="training_losses",
    about=__doc__,
    measure=measure,
    cases=PUBLISHED,
    usual=tuple(PUBLISHED),
    options={"steps": Option(default=50, help="steps whose losses are compared")},
    settings=_settings,
    short=lambda document, _: table(document),
    page="pytorch.md",
    smoke=(("bert",), {"steps": 3}),
    is_passed=is_passed,
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
