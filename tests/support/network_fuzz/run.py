"""One number: a network, tuned by a whole run, against ONNX Runtime and float64."""

from __future__ import annotations

import filecmp
import random
import shutil
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

import aoe
from aoe import FallbackWarning, OfflineModel
from aoe.device.registry import default_device
from aoe.execute.accuracy import MODEL_TOLERANCE, compare_model_results
from aoe.ort.sessions import random_feed, run_session, session_options
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import tune_with
from aoe.target import Target
from aoe.tuner.mode import TuneSettings
from aoe.tuner.parts import EngineParts
from aoe.tuner.precision.constraint import DEFAULT, cosine
from aoe.tuner.precision.settings import PrecisionMode, PrecisionSettings
from support.engine.cpu import open_session
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress
from support.fuzz.run import FuzzState
from support.network_fuzz.doubles import exact_results
from support.network_fuzz.engine import DrawnRuns, drawn_engine
from support.network_fuzz.networks import DrawnNetwork, draw_network

MOST_CANDIDATES = 10
"""Of a network: each takes half a second to compile."""
_AGAIN_SHARE = 0.15
"""Of the runs that are made twice: the second one has to write the same file."""
_EXACT_SHARE = 0.5
"""Of the networks in float32 that are held against float64."""
_WORSE, _FREE = 60.0, 2e-4
"""How much farther from float64 a tuned model may be than ONNX Runtime, and what any may be off, as
a share of the largest result: transformed sums alone make ten times the error."""
_OF_HALVES = 2e-2
"""The same of a network of which a part is rounded to float16, where neighbours are 1e-3 apart."""
_SAME = 1e-6
"""Of two runs of one model on one set of inputs."""
_LEAST_COSINE = 0.98
"""Of results in lower precision on inputs they were not held to."""
_CHECKED, _OTHER, _ZERO, _REPLACED = "checked", "of another seed", "zero", "with another weight"
"""Inputs: those a run has checked, and more."""
_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

Feed = Mapping[str, Any]


def settings_of(number: int, target: Target) -> PrecisionSettings:
    """Return what a number's network may be computed in: all modes this CPU has, in turns."""
    modes = [
        mode
        for mode in PrecisionMode
        if mode.lowest in target.precisions or not mode.lowest.is_lower
    ]
    chosen = [PrecisionSettings(mode=mode) for mode in modes]
    chosen = [chosen[0], PrecisionSettings(strict=True), *chosen]
    return chosen[number % len(chosen)]


class NetworkFuzzer:
    """Tunes networks by number.

    Args:
        runs: The engine's.
        scratch: Folder for what runs leave, which goes number by number.
        objects: Folder of compiled kernels.

    Attributes:
        seen: Kernels that stayed in models, by family and precision; `idle` counts networks that
            kept none.
    """

    def __init__(self, runs: DrawnRuns, scratch: Path, objects: Path) -> None:
        self.seen: Counter[str] = Counter()
        self._runs = runs
        self._scratch = scratch
        self._objects = objects
        self._target = default_device().describe()

    def attempt(self, number: int, _scratch: Path, _state: FuzzState) -> str:
        """Return what is wrong with a tuned network, or nothing."""
        folder = self._scratch / f"network_{number}"
        folder.mkdir()
        try:
            return "\n".join(self._flaws(number, folder))
        except Exception:  # any error is what we look for
            return traceback.format_exc(limit=-6).strip()
        finally:
            shutil.rmtree(folder)

    def _flaws(self, number: int, folder: Path) -> list[str]:
        rng = random.Random(f"run {number}")
        network = draw_network(number)
        onnx.save(network.proto, folder / "net.onnx")
        run = _Run(
            network=network,
            folder=folder,
            objects=self._objects,
            precision=settings_of(number, self._target),
            threads=rng.choice([1, min(2, self._target.core_num)]),
            seed=number,
            engine=self._runs.engine,
        )
        self._runs.begin(number)
        first = run.tune("first")
        flaws = run.flaws(first.om_file, with_float64=rng.random() < _EXACT_SHARE)
        if rng.random() < _AGAIN_SHARE and _is_whole(first):
            second = run.tune("second")
            if not filecmp.cmp(first.om_file, second.om_file, shallow=False):
                flaws.append("a second run writes another model")
        kept = [kernel.source.workload for kernel in first.validation.kept]
        self.seen.update(f"{one.op_type} {one.precision.value}" for one in kept)
        self.seen["idle"] += not kept
        return [f"{run}: {invalid_reason}" for invalid_reason in (*self._runs.flaws, *flaws)]


def _is_whole(result: OpatResult) -> bool:
    """Return True if a run was not cut short: a second one then has nothing left to try."""
    tried = sum(len(one.search.trials) for one in result.operators if one.search is not None)
    return tried < MOST_CANDIDATES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A network, and how it is tuned."""

    network: DrawnNetwork
    folder: Path
    objects: Path
    precision: PrecisionSettings
    threads: int
    seed: int
    engine: EngineParts

    def __str__(self) -> str:
        strict = " strict" if self.precision.strict else ""
        return f"{self.precision.mode}{strict}: {', '.join(self.network.blocks)}"

    @property
    def is_lower(self) -> bool:
        """True if it may be computed below float32."""
        return self.precision.mode.lowest.is_lower

    def tune(self, name: str) -> OpatResult:
        """Tune it into a folder of that name; all have one bank."""
        settings = TuneSettings(
            model=self.folder / "net.onnx",
            output=self.folder / name,
            input_shape=self.network.input_shape,
            core_num=self.threads,
            precision=self.precision,
            seed=self.seed,
            trials=1,
            max_tuning_count=MOST_CANDIDATES,
            compile_processes=1,
            cache_dir=self.objects,
            accept_busy=True,
        )
        bank = self.folder / "bank"
        bank.mkdir(exist_ok=True)
        found = tune_with(
            settings,
            env=run_environment(bank),
            cwd=self.folder,
            progress=RecordingProgress(),
            now=_NOW,
            engine=self.engine,
        )
        return found.get(OpatResult)

    def flaws(self, om_file: Path, *, with_float64: bool) -> list[str]:
        """Return what is wrong with the results of the tuned model."""
        options = session_options(threads=self.threads, optimize=True)
        plain = open_session(self.folder / "net.onnx", options)
        with warnings.catch_warnings():
            warnings.simplefilter("error", FallbackWarning)
            tuned = aoe.load(om_file, threads=self.threads if self.seed % 2 else 1)
        found, alone = [], []
        for label, feed in self._feeds(plain):
            expected, actual = run_session(plain, feed), tuned.run(None, feed)
            alone.append((feed, actual))
            found += [
                f"inputs {label}: {invalid_reason}"
                for invalid_reason in self._wrong(label, expected, actual)
            ]
            if with_float64 and label == _OTHER and not self.is_lower:
                found += self._far(feed, expected, actual)
        return found + _differing_at_once(tuned, alone)

    def _feeds(self, session: ort.InferenceSession) -> Iterator[tuple[str, Feed]]:
        if not self.network.is_open:
            yield _CHECKED, random_feed(session, self.seed)
        shapes, rng = self.network.shapes, np.random.default_rng(self.seed + 1)
        other = {name: _float32(rng.standard_normal(shape)) for name, shape in shapes.items()}
        yield _OTHER, other
        yield _ZERO, {name: _float32(np.zeros(shape)) for name, shape in shapes.items()}
        if self.network.replaceable:
            tensors = {tensor.name: tensor for tensor in self.network.proto.graph.initializer}
            weight = numpy_helper.to_array(tensors[self.network.replaceable])
            yield _REPLACED, {**other, self.network.replaceable: _float32(weight * 0.5)}

    def _wrong(self, label: str, expected: Sequence[Any], actual: Sequence[Any]) -> list[str]:
        """Return how results differ by more than a run allows."""
        if not self.is_lower:
            allowed = _OF_HALVES if self.network.has_halves else MODEL_TOLERANCE
            compared = compare_model_results(expected, actual, tolerance=allowed)
            return [] if compared.acceptable else [compared.detail]
        pairs = zip(expected, actual, strict=True)
        if not all(np.array_equal(np.isfinite(left), np.isfinite(right)) for left, right in pairs):
            return ["other results are finite"]
        least = {_CHECKED: DEFAULT.bound, _OTHER: _LEAST_COSINE}.get(label, -1.0)
        similar = cosine([expected], [actual])  # of the others, results may all but vanish
        return [] if similar >= least else [f"cosine {similar}"]

    def _far(self, feed: Feed, expected: Sequence[Any], actual: Sequence[Any]) -> list[str]:
        """Return results much farther from float64 than ONNX Runtime's."""
        found = []
        for number, exact in enumerate(exact_results(self.network.proto, feed)):
            scale = float(np.abs(exact).max(initial=0.0)) or 1.0
            host, ours = (
                float(np.abs(made[number] - exact).max(initial=0.0)) for made in (expected, actual)
            )
            if host > MODEL_TOLERANCE * scale:
                continue  # the host, or the reference, computes something else
            free = _OF_HALVES if self.network.has_halves else _FREE
            if ours > max(_WORSE * host, free * scale):
                told = f"{ours / scale:.1e} from float64, ONNX Runtime {host / scale:.1e}"
                found.append(f"result {number}: {told}")
        return found


def _float32(values: Any) -> Any:
    return np.asarray(values, np.float32)


def _differing_at_once(
    tuned: OfflineModel, alone: Sequence[tuple[Feed, Sequence[Any]]]
) -> list[str]:
    """Return where two callers at the same time get other results than one after the other."""
    with ThreadPoolExecutor(2) as callers:
        at_once = callers.map(lambda one: tuned.run(None, one[0]), [*alone, *alone])
        pairs = zip(at_once, [*alone, *alone], strict=True)
        compared = [compare_model_results(one[1], made, tolerance=_SAME) for made, one in pairs]
    return [f"two callers at once: {one.detail}" for one in compared if not one.acceptable]


@contextmanager
def fuzzing(scratch: Path, objects: Path | None = None) -> Iterator[NetworkFuzzer]:
    """Open what networks are tried with.

    Args:
        scratch: Folder for what runs leave.
        objects: Where compiled kernels are kept; None for the scratch folder.
    """
    with drawn_engine() as runs:
        yield NetworkFuzzer(runs, scratch, objects or scratch / "objects")
