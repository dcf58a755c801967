"""Steps of training: eager, with a fused optimizer, by Inductor, and as `AOE_MODE=2` tunes them.

    python benchmarks/training.py                              # hours, quiet machine
    python benchmarks/training.py --smoke                      # does everything work
    python benchmarks/training.py vae mixer --threads 2 --forms eager fused aoe
    python benchmarks/training.py bert4 resnet18 --first 5 --results first.json

Needs the extras `engine` and `torch`. Networks are plain `torch.nn` with random weights, see
`networks/trained.py`; a step is forward, backward and AdamW. Each form of a network has a process
of its own, which trains `--steps` steps first: their losses are compared with eager's, within
`BOUND` of the loss (Inductor draws other masks of dropout, so its losses are shown and not
compared). Then the processes take turns, in an order that turns from round to round; one that waits
does nothing. A ratio is the median over the rounds of the ratios within a round.

With `--first` only first steps are measured, compiling included: pairs of fresh processes, one with
`backend="aoe"`, which finds everything decided, one with `backend="aot_eager"`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import inf, isnan
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from comparison.experiment import Experiment, Option, run_experiment
from comparison.steps import CommandError, Steps
from networks.trained import TRAININGS
from training_worker import FIRST, FORMS

from aoe.measurement import SpeedupEstimate, estimate_speedup
from aoe.measurement.pairs import PairedSamples

BOUND = 2e-2
"""Largest difference of a loss from eager's, relative to it: rounding grows from step to step."""
_HERE = Path(__file__).resolve().parent
_COMPARED = ("fused", "aoe")
_DECIDING_STEPS = 4
"""Steps of the two processes that tune before first steps are compared."""
Record = dict[str, Any]


class Worker:
    """One form in its process; a context that ends it."""

    def __init__(self, network: str, form: str, given: Namespace) -> None:
        folder = given.work / f"{network}_{form}"
        (folder / "bank").mkdir(parents=True, exist_ok=True)
        task = {
            **{name: getattr(given, name) for name in ("threads", "steps", "budget")},
            "network": network,
            "form": form,
        }
        paths = [str(_HERE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": str(given.threads),
            "TUNE_BANK_PATH": str(folder / "bank"),
            "AOE_BUILT_IN_BANK": "off",
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_HERE / "training_worker.py"), json.dumps(task)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._log = folder / "log"

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ready(self) -> Record:
        """Return what it says when it is prepared, or its failure."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            last = (self._log.read_text().strip().splitlines() or ["no word"])[-1]
            return {"failure": last}
        found: Record = json.loads(line)
        return found

    def answer(self) -> Record:
        """Return the next record of the process.

        Raises:
            CommandError: it failed; the other networks have their turn.
        """
        found = self.ready()
        if "failure" in found:
            raise CommandError(f"a process ended: {found['failure']}")
        return found

    def turn(self, seconds: float) -> float:
        """Return the median ms of a step."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(seconds)}\n")
        self._process.stdin.flush()
        return float(self.answer()["ms"])


def measure(name: str, steps: Steps, given: Namespace) -> None:
    """Measure a network, unless that is done."""
    measured = _first_steps if given.first else _measured
    steps.once(name, lambda: measured(name, given))


def _first_steps(name: str, given: Namespace) -> Record:
    """Return the CPU time of first steps of fresh processes that take turns, in seconds."""
    deciding = Namespace(**{**vars(given), "steps": _DECIDING_STEPS})
    for _ in range(2):
        with Worker(name, "first_aoe", deciding) as worker:
            worker.answer()  # a process that did not decide would leave that to the timed ones
    single = Namespace(**{**vars(given), "steps": 1})
    found: dict[str, list[float]] = {backend: [] for backend in FIRST}
    for number in range(given.first):
        for backend in FIRST[:: -1 if number % 2 else 1]:
            with Worker(name, f"first_{backend}", single) as worker:
                found[backend].append(worker.answer()["cpu_s"])
    return {"title": TRAININGS[name][0], "first": found}


def _first_table(document: Mapping[str, Any]) -> str:
    """Return the ratios of first steps as Markdown."""
    lines = ["| network | aot_eager, CPU s | aoe over aot_eager | least and largest |"]
    lines += ["|---|---|---|---|"]
    for one in document["steps"].values():
        aoe, other = (one["first"][backend] for backend in FIRST)
        ratios = [mine / its for mine, its in zip(aoe, other, strict=True)]
        cells = (one["title"], f"{median(other):.2f}", f"{median(ratios):.2f}")
        lines.append(f"| {' | '.join(cells)} | {min(ratios):.2f} to {max(ratios):.2f} |")
    return "\n".join(lines) + "\n"


def _measured(name: str, given: Namespace) -> Record:
    forms: dict[str, Record] = {}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for form in given.forms:
            worker = stack.enter_context(Worker(name, form, given))
            forms[form] = worker.ready()  # one after another: tuning has the machine
            if "failure" not in forms[form]:
                workers[form] = worker
                forms[form]["ms"] = []
        order = list(workers)
        for number in range(given.rounds):
            for form in order[number % len(order) :] + order[: number % len(order)]:
                forms[form]["ms"].append(round(workers[form].turn(given.turn), 3))
    if "losses" not in forms.get("eager", {}):
        raise CommandError(f"no eager training to compare with: {forms.get('eager')}")
    eager = forms["eager"]["losses"]
    for found in forms.values():
        if "losses" in found:
            found["loss_difference"] = difference(eager, found["losses"])
            found["losses"] = [found["losses"][0], found["losses"][-1]]
    return {"title": TRAININGS[name][0], "forms": forms}


def difference(expected: Sequence[float], found: Sequence[float]) -> float:
    """Return the largest difference of losses, relative to the expected one; inf beside a NaN."""
    pairs = zip(expected, found, strict=True)
    differences = [abs(one - other) / max(abs(one), 1e-9) for one, other in pairs]
    return inf if any(map(isnan, differences)) else max(differences)


def table(document: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    if document["options"].get("first"):
        return _first_table(document)
    records: list[Record] = list(document["steps"].values())
    shown = [form for form in FORMS if any(form in one["forms"] for one in records)]
    others = [form for form in shown if form != "eager"]
    facts, options = document["environment"], document["options"]
    lines = [
        (
            f"`python benchmarks/training.py` on {facts.get('cpu', 'this machine')}, "
            f"{options['threads']} thread(s), torch {options['torch']}, {document['date']}; "
            f"{options['rounds']} rounds. Each ratio says how many times as fast as eager, with "
            "its 95 % interval; loss: the largest difference from eager's over "
            f"{options['steps']} steps."
        ),
        "",
        f"| network | eager ms | {' | '.join(FORMS[one] for one in others)} | loss, aoe |",
        "|---|---|" + "---|" * (len(others) + 1),
    ]
    lines += [_line(one, others) for one in records]
    for form in others:
        ratios = [median_ratio(one["forms"], form) for one in records]
        known = [ratio for ratio in ratios if ratio is not None]
        if known:
            of = "" if len(known) == len(records) else f", {len(known)} of {len(records)} networks"
            lines.append(f"\n{FORMS[form]}: geometric mean {geometric_mean(known):.2f}x{of}")
    return "\n".join(lines) + "\n"


def median_ratio(forms: Mapping[str, Record], form: str) -> float | None:
    """Return how many times as fast as eager a form is, None where it was not measured."""
    found = _ratio(forms, form)
    return None if found is None else found.median


def _ratio(forms: Mapping[str, Record], form: str) -> SpeedupEstimate | None:
    if "ms" not in forms.get(form, {}):
        return None
    samples = PairedSamples(
        baseline_us=tuple(forms["eager"]["ms"]), tuned_us=tuple(forms[form]["ms"])
    )
    estimate: SpeedupEstimate = estimate_speedup(samples)
    return estimate


def _line(record: Record, others: Sequence[str]) -> str:
    forms = record["forms"]
    cells = [record["title"], f"{median(forms['eager']['ms']):.1f}"]
    for form in others:
        found = _ratio(forms, form)
        failed = "failed" if "failure" in forms.get(form, {}) else ""
        text = f"{found.median:.2f}x ({found.low:.2f} to {found.high:.2f})" if found else failed
        cells.append(text)
    loss = forms.get("aoe", {}).get("loss_difference")
    cells.append("" if loss is None else f"{loss:.1e}")
    return f"| {' | '.join(cells)} |"


def is_passed(document: Mapping[str, Any]) -> bool:
    """True if losses are eager's within the bound, where the same masks are drawn.

    A form that failed has no losses, and does not pass.
    """
    forms = [one.get("forms", {}) for one in document["steps"].values()]
    found = [one[form] for one in forms for form in _COMPARED if form in one]
    return all(one.get("loss_difference", inf) <= BOUND for one in found)


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


EXPERIMENT = Experiment(
    name="training",
    about=__doc__,
    measure=measure,
    cases=TRAININGS,
    usual=tuple(TRAININGS),
    options={
        "threads": Option(default=1),
        "rounds": Option(default=11),
        "turn": Option(default=1.0, help="seconds of one turn"),
        "steps": Option(default=20, help="steps whose losses are compared"),
        "budget": Option(default=60.0, help="tuning_time_limit of a graph, seconds"),
        "first": Option(default=0, help="pairs of first steps; nothing else is measured then"),
        "forms": Option(default=tuple(FORMS), type=str, help=f"of {', '.join(FORMS)}"),
    },
    settings=lambda given: {
        **{name: getattr(given, name) for name in ("threads", "rounds", "turn", "steps", "budget")},
        "forms": list(given.forms),
        **({"first": given.first} if given.first else {}),
        "torch": _torch_version(),
    },
    short=lambda document, _: table(document),
    page="pytorch.md",
    smoke=(("vae",), {"rounds": 2, "turn": 0.05, "budget": 5.0, "steps": 6}),
    is_passed=is_passed,
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
