"""Whole models on more than normally distributed inputs: faults that show between two kernels.

A kernel that is right alone may hand on a number next to the right one, 0 for 1e-41, of which
another kernel makes an infinity. So a tuned model is held against the untuned one on large and
small inputs, on constant ones, and with one NaN among them. How far results may lie apart there
is what ONNX Runtime itself makes of it: without its graph optimisations, and of inputs that
differ by rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from aoe.errors import RunError
from aoe.execute.accuracy import (
    AS_BEFORE,
    MODEL_TOLERANCE,
    Deviation,
    Tolerance,
    compare,
    compare_model_results,
    different,
    worse_of,
)
from aoe.execute.messages import ModelPart, WorkerSetup
from aoe.execute.model_sessions import open_part
from aoe.ort.inputs import ModelInputs
from aoe.ort.optimizers import ALL_OPTIMIZATIONS, Optimizations, find_right, mark
from aoe.ort.sessions import run_session, run_within
from aoe.workload import Precision
from aoebank import plural

if TYPE_CHECKING:
    from pathlib import Path

    import onnxruntime as ort

Array = np.ndarray[Any, Any]
Feed = Mapping[str, Array]

_LARGEST_SETTING = 16
"""Elements of a float vector that may be a setting of the model, such as scales of a Resize; those
stay as they are."""
_DOMINATING = 95.0
"""Added to one element of each row: exponentials of the others are denormal beside its own."""
_ROUNDING = 1e-6
"""Relative change of inputs that stands for rounding: 8 units in the last place of float32."""
_PERTURBED = 2
_SPREAD = 4.0
"""Times that results may lie apart by what ONNX Runtime's own do."""
_STEPS_APART = 2.0
"""The same on usual inputs, for models that round to integers: either model may be as far from the
integers it means as ONNX Runtime's own optimised form is."""
_USUAL_S = 20.0
"""Seconds for the runs that tell how far those are apart."""
_PROBES = (30.0, -30.0)
"""Values that replace a NaN to find out which results depend on its element."""
_MOST_BYTES = 256 << 20
"""Of results that are kept to be compared."""
_QUANTISED = frozenset({Precision.INT8, Precision.INT4})
"""Precisions that have no NaN."""


# ---- inputs ----


def _large(array: Array, rng: np.random.Generator) -> Array:
    return array * 30


def _with_nan(array: Array, rng: np.random.Generator) -> Array:
    changed = array.copy()
    changed.reshape(-1)[rng.integers(array.size)] = np.nan
    return changed


def _in_place_of_nan(value: float, array: Array, rng: np.random.Generator) -> Array:
    return np.where(np.isnan(array), array.dtype.type(value), array)


def _dominated(array: Array, rng: np.random.Generator) -> Array:
    rows = array.reshape(-1, array.shape[-1]).copy()
    rows[np.arange(len(rows)), rng.integers(array.shape[-1], size=len(rows))] += _DOMINATING
    return rows.reshape(array.shape)


def _small(array: Array, rng: np.random.Generator) -> Array:
    return array * 1e-3


def _zeros(array: Array, rng: np.random.Generator) -> Array:
    return np.zeros_like(array)


def _ones(array: Array, rng: np.random.Generator) -> Array:
    return np.ones_like(array)


_NAN = "with one NaN"
_USUAL = "as they are"
UNUSUAL: Mapping[str, Callable[[Array, np.random.Generator], Array]] = {
    "times 30": _large,
    _NAN: _with_nan,
    "with one dominating element in each row": _dominated,
    "times 0.001": _small,
    "of zeros": _zeros,
    "of ones": _ones,
}
"""Changes of float inputs, by name; the change that finds most faults comes first."""


def _is_changed(array: Array) -> bool:
    """True for a float tensor with elements that is no setting of the model."""
    is_tensor = array.ndim > 1 or array.size > _LARGEST_SETTING
    return array.dtype.kind == "f" and is_tensor and array.size > 0


def _changed(
    feed: Feed, change: Callable[[Array, np.random.Generator], Array], seed: int
) -> dict[str, Array]:
    """Return inputs of which float tensors are changed; integers keep their legal range."""
    changed = dict(feed)
    for number, (name, array) in enumerate(feed.items()):
        if _is_changed(array):
            with np.errstate(over="ignore"):  # float16
                made = change(array, np.random.default_rng([seed, number]))
            changed[name] = made.astype(array.dtype)
    return changed


def _perturbed(array: Array, rng: np.random.Generator) -> Array:
    """Return numbers that differ by rounding; a constant input is no longer constant."""
    scale = float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) or 1.0
    rounding = max(_ROUNDING, float(np.finfo(array.dtype).eps))
    relative, absolute = rounding * rng.standard_normal((2, *array.shape))
    return np.asarray(array * (1 + relative) + scale * absolute)


# ---- runs ----


class _Deadline:
    """Seconds that runs may take, counted from now."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return self._end_s - time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Inputs of one kind at one point, and what the untuned model computes of them."""

    kind: str  # Key of `UNUSUAL`, or `_USUAL`
    usual: Feed  # The inputs they are made of
    seed: int  # Of the change
    expected: list[Any]  # Results of the untuned model

    @property
    def feed(self) -> dict[str, Array]:
        """The inputs."""
        if self.kind == _USUAL:
            return dict(self.usual)
        return _changed(self.usual, UNUSUAL[self.kind], self.seed)


@dataclass(slots=True)
class UnusualInputs:
    """Compares models on unusual inputs, in one process; results of the untuned one are kept."""

    setup: WorkerSetup  # Of the worker
    _key: tuple[Any, ...] = ()
    _cases: list[_Case] = field(default_factory=list)

    def compared(
        self,
        baseline: ModelPart,
        tuned: ModelPart,
        inputs: Sequence[ModelInputs],
        most_s: float,
        *,
        with_nan: bool = True,
    ) -> Deviation:
        """Return the first deviation beyond what is tolerated on unusual inputs.

        One model is loaded at a time. Inputs that ONNX Runtime refuses are passed over, and so is
        what no time is left for.

        Args:
            baseline: The untuned model.
            tuned: The model in question.
            inputs: Usual ones, at each point of a range.
            most_s: Seconds for the runs of each of the two.
            with_nan: True to try a NaN among the inputs, too.
        """
        self._learn(baseline, inputs, most_s, with_nan=with_nan)
        session, deadline = open_part(self.setup, tuned), _Deadline(most_s)
        wrong: list[tuple[_Case, list[Any] | RunError]] = []
        for case in self._cases:
            if case.kind == _NAN and tuned.precision in _QUANTISED:
                continue
            try:
                found = run_within(session, case.feed, deadline.left_s)
            except RunError as error:
                wrong.append((case, error))
                continue
            if found is None:
                break
            if not _deviation(case, found, tuned.precision).acceptable:
                wrong.append((case, found))
        del session
        yardstick = _Yardstick(setup=self.setup, baseline=baseline, most_s=most_s)
        for case, found_or_error in wrong:
            if isinstance(found_or_error, RunError):
                deviation = different(found_or_error.problem)
            else:
                deviation = yardstick.deviation(case, found_or_error, tuned.precision)
            if not deviation.acceptable:
                return replace(deviation, detail=f"on inputs {case.kind}: {deviation.detail}")
        return AS_BEFORE

    def _learn(
        self,
        baseline: ModelPart,
        inputs: Sequence[ModelInputs],
        most_s: float,
        *,
        with_nan: bool,
    ) -> None:
        """Run the untuned model, unless its results are known."""
        key = (baseline, _stamp(baseline.model), repr(inputs), with_nan)
        if key == self._key:
            return
        self._key, self._cases = (), []  # what was kept goes before a model is loaded
        session, deadline = open_part(self.setup, baseline), _Deadline(most_s)
        room = _MOST_BYTES
        for case in _made(session, inputs, deadline, with_nan=with_nan):
            room -= sum(np.asarray(one).nbytes for one in _leaves(case.expected))
            if room < 0 and self._cases:
                break
            self._cases.append(case)
        self._key = key


def within_rounding_steps(
    setup: WorkerSetup,
    untuned: ModelPart,
    feed: Feed,
    results: tuple[list[Any], list[Any]],
    precision: Precision,
) -> Deviation:
    """Return the deviation of results, less what rounding steps of a model explain.

    Where a model rounds to integers, a difference in the last place in front of a step becomes a
    whole step behind it. How far results may be apart is measured: by ONNX Runtime's own results
    without optimisations, which are the integers the model means, and of inputs that differ by
    rounding. The note of the deviation has the figures.

    Args:
        setup: Of the worker.
        untuned: The imported model.
        feed: Inputs.
        results: What two models compute of them, the baseline's first.
        precision: Of the other one.
    """
    yardstick = _Yardstick(setup=setup, baseline=untuned, most_s=_USUAL_S, times=_STEPS_APART)
    case = _Case(kind=_USUAL, usual=feed, seed=0, expected=results[0])
    return yardstick.deviation(case, results[1], precision)


def right_optimizations(
    setup: WorkerSetup,
    untuned: ModelPart,
    inputs: ModelInputs,
    most_s: float,
    tolerance: float,
) -> tuple[Optimizations, str]:
    """Return the optimisations of ONNX Runtime with which a model is right, and how far it is off.

    Its results without optimisations are the model's meaning. With optimisations they may lie apart
    by what inputs that differ by rounding make of them, and by a share of the largest result.

    Args:
        setup: Of the worker.
        untuned: The imported model.
        inputs: What it is run on; the first set.
        most_s: Seconds for the runs of each session.
        tolerance: That share.

    Raises:
        RunError: the model cannot be run, or not in time.
    """
    plain = open_part(setup, replace(untuned, optimize=False))
    feed = inputs.first(plain)
    meant = _leaves(run_session(plain, feed))
    others: list[list[Array]] = []

    def deviation(part: ModelPart) -> Deviation:
        found = run_within(open_part(setup, part), feed, most_s)
        if found is None:
            raise RunError(str(part.model), "no results in time")
        results = _leaves(found)
        if len(results) != len(meant):
            return different(f"{plural(len(results), 'result')} instead of {len(meant)}")
        return reduce(worse_of, (apart(*one) for one in enumerate(results)), AS_BEFORE)

    def apart(number: int, result: Array) -> Deviation:
        own = [other[number] for other in others if len(other) == len(meant)]
        one = _beyond(
            meant[number], result, own, None, Precision.FLOAT32, times=_SPREAD, share=tolerance
        )
        return replace(one, note=_told_apart(number, meant[number], result, own))

    def is_right(optimizations: Optimizations) -> bool:
        proto = onnx.load(str(untuned.model), load_external_data=False)
        mark(proto, optimizations)
        file = untuned.model.with_name(f"marked_{untuned.model.name}")  # beside its weights
        file.write_bytes(proto.SerializeToString())
        try:
            return deviation(replace(untuned, model=file)).acceptable
        except RunError:
            return False
        finally:
            file.unlink()

    if deviation(untuned).acceptable:
        return ALL_OPTIMIZATIONS, ""
    for seed in range(_PERTURBED):  # slow without optimisations, and seldom needed
        changed = _changed(feed, _perturbed, 1000 + seed)
        others.append(_leaves(run_session(plain, changed)))
    del plain
    found = deviation(untuned)
    if found.acceptable:
        return ALL_OPTIMIZATIONS, ""
    return find_right(is_right), found.note.partition(";")[0] or found.detail


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _made(
    session: ort.InferenceSession,
    inputs: Sequence[ModelInputs],
    deadline: _Deadline,
    *,
    with_nan: bool,
) -> Iterator[_Case]:
    """Yield all cases that ONNX Runtime takes, with its results, while there is time."""
    usual = [one.first(session) for one in inputs]
    for kind in UNUSUAL:
        if kind == _NAN and not with_nan:
            continue
        for seed, feed in enumerate(usual):
            if not any(map(_is_changed, feed.values())):
                continue
            case = _Case(kind=kind, usual=feed, seed=seed, expected=[])
            try:
                expected = run_within(session, case.feed, deadline.left_s)
            except RunError:  # not legal for this model
                continue
            if expected is None:
                return
            yield replace(case, expected=expected)


def _deviation(case: _Case, found: list[Any], precision: Precision) -> Deviation:
    return compare_model_results(case.expected, found, precision, tolerance=MODEL_TOLERANCE)


# ---- what ONNX Runtime itself makes of them ----


@dataclass(slots=True)
class _Yardstick:
    """Spread of ONNX Runtime's own results, measured only where a tuned model differs at all."""

    setup: WorkerSetup  # Of the worker
    baseline: ModelPart  # The untuned model
    most_s: float  # Seconds for all runs of each level of optimisation
    times: float = _SPREAD  # That results may lie apart by what ONNX Runtime's own do
    _sessions: dict[bool, tuple[ort.InferenceSession, _Deadline] | None] = field(
        default_factory=dict
    )

    def deviation(self, case: _Case, found: list[Any], precision: Precision) -> Deviation:
        """Return the deviation of results beyond that of ONNX Runtime's own from each other.

        Args:
            case: Inputs, and results of the untuned model.
            found: Results of the tuned one.
            precision: Of the tuned one.
        """
        expected, actual = _leaves(case.expected), _leaves(found)
        if len(actual) != len(expected):
            return _deviation(case, found, precision)
        others = [_leaves(result) for result in self._others(case)]
        others = [leaves for leaves in others if len(leaves) == len(expected)]
        reached: list[Array | None] = [None] * len(expected)
        if case.kind == _NAN:
            runs = [leaves for leaves in self._without_nan(case) if len(leaves) == len(expected)]
            reached = _reached(expected, runs)
            leaves: Iterable[Sequence[Array]] = (
                zip(*runs, strict=True) if runs else ((),) * len(expected)
            )
            expected = list(map(_independent, expected, actual, leaves))
        worst = AS_BEFORE
        for number, (reference, result) in enumerate(zip(expected, actual, strict=True)):
            apart = [other[number] for other in others]
            one = _beyond(reference, result, apart, reached[number], precision, times=self.times)
            if one.detail:
                one = replace(one, detail=f"result {number}: {one.detail}")
            elif case.kind == _USUAL:
                one = replace(one, note=_told_apart(number, reference, result, apart))
            worst = worse_of(worst, one)
        return worst

    def _others(self, case: _Case) -> Iterator[list[Any]]:
        """Yield results without optimisations, and of inputs that differ by rounding."""
        yield from self._results(case.feed, optimize=False)
        for seed in range(_PERTURBED):
            changed = _changed(case.feed, _perturbed, 1000 + seed)
            yield from self._results(changed, optimize=True)

    def _without_nan(self, case: _Case) -> list[list[Array]]:
        """Return the results with the number that the NaN is in place of, and with others."""
        feeds = [_changed(case.feed, partial(_in_place_of_nan, probe), 0) for probe in _PROBES]
        runs = [run for feed in (case.usual, *feeds) for run in self._results(feed, optimize=True)]
        return [_leaves(run) for run in runs]

    def _results(self, feed: Feed, *, optimize: bool) -> Iterator[list[Any]]:
        """Yield the results of the untuned model; nothing where it cannot be run so."""
        opened = self._opened(optimize=optimize)
        if opened is None:
            return
        session, deadline = opened
        try:
            found = run_within(session, feed, deadline.left_s)
        except RunError:
            return
        if found is not None:
            yield found

    def _opened(self, *, optimize: bool) -> tuple[ort.InferenceSession, _Deadline] | None:
        if optimize not in self._sessions:
            if self.baseline.is_large:  # one is loaded at a time
                self._sessions.clear()
            try:
                session = open_part(self.setup, replace(self.baseline, optimize=optimize))
                self._sessions[optimize] = session, _Deadline(self.most_s)
            except RunError:
                self._sessions[optimize] = None
        return self._sessions[optimize]


def _leaves(result: Any) -> list[Array]:
    """Return the arrays of results, also of sequences and maps."""
    if isinstance(result, Mapping):
        return [np.asarray(list(result)), *_leaves(list(result.values()))]
    if isinstance(result, list | tuple):
        return [leaf for one in result for leaf in _leaves(one)]
    return [np.asarray(result)]


def _reached(expected: Sequence[Array], runs: Sequence[Sequence[Array]]) -> list[Array | None]:
    """Return for each result where it depends on the NaN, with all of the same sample.

    A kernel may compute neighbours together, as tiles of an image, but no two samples. All of them
    may depend on it where no time was left for a run.

    Args:
        expected: Results with the NaN.
        runs: Results with numbers in its place.
    """
    reached: list[Array | None] = []
    for number, reference in enumerate(expected):
        others = [run[number] for run in runs]
        is_alike = all(other.shape == reference.shape for other in others)
        if not (others and is_alike and reference.ndim):
            reached.append(np.ones(reference.shape, bool))
            continue
        differs = np.zeros(reference.shape, bool)
        for other in others:
            differs |= (other != reference) | (other != others[0])
        of_sample = differs.any(axis=tuple(range(1, differs.ndim)), keepdims=True)
        reached.append(np.broadcast_to(of_sample, reference.shape))
    return reached


def _independent(reference: Array, actual: Array, runs: Sequence[Array]) -> Array:
    """Return a result with NaN, less what ONNX Runtime alone spoils.

    Its LRN adds channels up and takes them off again, so that all behind a NaN are NaN. What no
    number in place of the NaN changes beyond its own rounding does not depend on it, and where the
    tuned model has a number there, that of the usual inputs is expected.

    Args:
        reference: The result with the NaN.
        actual: That of the tuned model.
        runs: Results with numbers in its place, the usual one first.
    """
    if len(runs) <= len(_PROBES) or any(_kind(one) != _kind(reference) for one in (actual, *runs)):
        return reference
    if reference.dtype.kind != "f":
        return reference
    usual, *others = runs
    scale = float(np.abs(usual[np.isfinite(usual)]).max(initial=0.0)) * max(_PROBES)
    with np.errstate(invalid="ignore"):
        is_same = [np.abs(other - usual) <= _ROUNDING * scale for other in others]
    spoilt = np.isnan(reference) & np.isfinite(actual) & np.logical_and.reduce(is_same)
    return np.where(spoilt, usual, reference)


def _kind(array: Array) -> tuple[Any, ...]:
    return array.shape, array.dtype


def _beyond(
    reference: Array,
    actual: Array,
    others: Sequence[Array],
    reached: Array | None,
    precision: Precision,
    *,
    times: float,
    share: float = MODEL_TOLERANCE,
) -> Deviation:
    """Return the excess of a result over the spread of ONNX Runtime's own results.

    Where those disagree between NaN, infinities and numbers, the tuned one may have any. Of
    results that are no floats as many may differ as do so there.
    """
    if any(_kind(other) != _kind(reference) for other in others):
        return AS_BEFORE  # not even their shape is settled
    if _kind(actual) != _kind(reference):
        return compare_model_results([reference], [actual])
    if reference.dtype.kind != "f":
        return _counted(reference, actual, others, reached, precision, times)
    unsettled = np.zeros(reference.shape, bool)
    spread = 0.0
    for other in others:
        with np.errstate(invalid="ignore"):
            apart = np.abs(other.astype(np.float64) - reference)
        both = np.isfinite(other) & np.isfinite(reference)
        same = (other == reference) | (np.isnan(other) & np.isnan(reference))
        unsettled |= ~both & ~same
        spread = max(spread, float(apart[both].max(initial=0.0)))
    scale = float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0)) or 1.0
    allowed = math.inf if precision.is_lower else share * scale + times * spread
    zero = reference.dtype.type(0)
    return compare(
        np.where(unsettled, zero, reference),
        np.where(unsettled, zero, actual),
        Tolerance(relative=0.0, absolute=allowed),
        undefined=reached,
    )


def _counted(
    reference: Array,
    actual: Array,
    others: Sequence[Array],
    reached: Array | None,
    precision: Precision,
    times: float,
) -> Deviation:
    """Return the deviation of integers: in how many places they may differ."""
    differs = reference != actual
    if reached is not None:
        differs &= ~reached
    most = times * max((int((reference != other).sum()) for other in others), default=0)
    count = int(differs.sum())
    if precision.is_lower or count <= most:
        return AS_BEFORE
    return different(f"other values in {plural(count, 'place')}")


def _told_apart(number: int, reference: Array, actual: Array, others: Sequence[Array]) -> str:
    """Return the deviation of a result beside that of ONNX Runtime's own, in words; or nothing.

    Nothing is said of text, nor of results of another shape.
    """
    if reference.dtype.kind not in "biuf" or _kind(actual) != _kind(reference):
        return ""
    mine = _apart(reference, actual)
    if not mine[0]:
        return ""
    alike = (_apart(reference, other) for other in others if _kind(other) == _kind(reference))
    own = max(alike, key=lambda one: one[1], default=(0, 0.0))
    return (
        f"result {number}: {mine[0]:,} of {reference.size:,} values differ beyond rounding, by up "
        f"to {mine[1]:.2%} of the largest; of ONNX Runtime's own, {own[0]:,} by up to {own[1]:.2%}"
    )


def _apart(reference: Array, actual: Array) -> tuple[int, float]:
    """Return the number of values off beyond rounding, and the largest error as a share."""
    wide, narrow = reference.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(narrow)
    scale = float(np.abs(wide[finite]).max(initial=0.0)) or 1.0
    error = np.abs(wide - narrow, where=finite, out=np.zeros_like(wide)) / scale
    is_float = reference.dtype.kind == "f"
    return int((error > (MODEL_TOLERANCE if is_float else 0)).sum()), float(error.max(initial=0.0))
