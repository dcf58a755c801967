"""The choice of a float32 model in integers: as accurate as asked, and faster, or not at all.

ranges from `--calibration` -> all that can be in integers, or products alone -> products go back
until the model keeps its accuracy -> products go back that are slower in integers -> the fastest

The bank remembers the choice, so that a later run only writes the model again.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from aoe.bank.choices import Choice, ChoiceKind, SaveChoice, StoredChoice
from aoe.errors import AccuracyError, RunError
from aoe.execute.messages import ModelPart
from aoe.graph.origins import Origins
from aoe.graph.weights import WeightStore, is_outside
from aoe.measurement import SpeedupEstimate
from aoe.om.file import FALLBACK, WEIGHTS
from aoe.ort.calibration import CalibratedQuantizer, QuantizedReach, is_quantised
from aoe.ort.profile import RUNS
from aoe.ort.sessions import session_options
from aoe.tuner.chosen_graph import ChosenGraph
from aoe.tuner.policies import final_policy, variant_policy
from aoe.tuner.precision.constraint import AccuracyConstraint, Results, Trade, hold, told
from aoe.tuner.precision.settings import Listing, MixLists
from aoe.tuner.tune_context import TuneContext
from aoe.validation.comparing import ModelComparer, TimeIsUpError
from aoe.workload import Precision
from aoebank import plural

_HALVES = frozenset({onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})
_TIMEOUT_S = 600.0
_TIME_SHARE = 0.2
"""Of a time limit, for the whole choice: what kernels add to it is smaller, and comes behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedForm:
    """A model in integers, with what it costs and gains."""

    reach: QuantizedReach  # Which operators are in integers
    products: int  # Products of the model that may be lowered
    inaccurate: tuple[str, ...]  # Products that went back for the accuracy
    slow: tuple[str, ...]  # Products that went back because float32 is faster
    accuracy: float  # The metric of `--accuracy`
    speedup: float | None  # Over the imported model, None where it was not measured

    @property
    def in_integers(self) -> int:
        """Products that are in integers."""
        return self.products - len(self.inaccurate) - len(self.slow)

    @property
    def words(self) -> str:
        """The form in a line."""
        kept = f"{self.in_integers} of {plural(self.products, 'product')}"
        gain = "not measured" if self.speedup is None else f"{self.speedup:.2f}x"
        return f"{self.reach.value}, {kept} in integers: {gain}, accuracy {told(self.accuracy)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Result of the choice."""

    forms: tuple[CalibratedForm, ...]  # All that were measured, in their order
    # The graph that is tuned, None where the model in float32 stays.
    chosen: ChosenGraph | None
    is_stored: bool = False  # True if the bank had it: nothing of it was measured in this run


def calibrate(tuning: TuneContext) -> Calibration | None:
    """Return the model in integers where that is accurate enough and faster.

    None where nobody asks for it: without `--calibration`, or in a mode without integers. A model
    that cannot be written in integers is told, and stays what it is.
    """
    precision = tuning.settings.precision
    is_asked = precision.mode.quantises and bool(precision.calibration)
    if not is_asked or tuning.settings.shape_range is not None:
        return None
    proto = tuning.subject.start
    if is_quantised(proto) or any(one.data_type in _HALVES for one in proto.graph.initializer):
        return None
    if is_outside(proto):
        tuning.progress.warn("a model with weights beside it is not calibrated: int8 for products")
        return None
    try:
        return tuning.choice(
            ChoiceKind.CALIBRATION,
            _choice_of(tuning),
            recalled=partial(_stored, tuning),
            made=partial(_chosen_now, tuning),
        )
    except (RunError, AccuracyError, TimeIsUpError) as error:
        why = str(error) or "the time limit"
        tuning.progress.warn(f"the model is not calibrated: {why}")
        return None


def _chosen_now(tuning: TuneContext, save: SaveChoice) -> Calibration | None:
    if tuning.settings.lookup_only:
        return None
    sets = plural(len(tuning.settings.precision.calibration), "set")
    tuning.progress.step(f"writing the model in integers, ranges by {sets} of --calibration")
    return _Chooser(tuning).choose(save)


def _choice_of(tuning: TuneContext) -> Choice:
    """Return all that a choice depends on, but for the machine."""
    subject, precision, lists = tuning.subject, tuning.settings.precision, {}
    for name, listing in sorted(precision.lists.listings.items()):
        lists[name] = listing.value
    return {
        "model": subject.model.sha256,
        # another graph of the same model if an earlier mode has chosen one
        "nodes": len(subject.start.graph.node),
        "calibration": subject.calibration.digest(),
        "accuracy": str(precision.constraint),
        "lists": lists,
        "streams": subject.streams,
        "onnxruntime": tuning.machine.versions.get("onnxruntime", ""),
    }


def _stored(tuning: TuneContext, stored: StoredChoice) -> Calibration | None:
    """Return the choice of an earlier run, None where it cannot be made again."""
    try:
        forms = tuple(map(form_from_json, stored.forms))
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    if stored.chosen is None:
        tuning.progress.step("float32 stays, as in the bank: no form in integers is faster")
        return Calibration(forms=forms, chosen=None, is_stored=True)
    form = forms[stored.chosen]
    tuning.progress.step(f"writing the model in integers, as in the bank: {form.words}")
    chosen = _Chooser(tuning).recalled(form)
    if chosen is None:
        tuning.progress.warn("the choice in the bank does not hold here: it is made anew")
        return None
    return Calibration(forms=forms, chosen=chosen, is_stored=True)


def form_to_json(form: CalibratedForm) -> dict[str, Any]:
    """Return a form as the summary and the bank have it."""
    return {
        "reach": form.reach.value,
        "products": form.products,
        "inaccurate": list(form.inaccurate),
        "slow": list(form.slow),
        "accuracy": form.accuracy if math.isfinite(form.accuracy) else None,
        "speedup": form.speedup,
    }


def form_from_json(value: Mapping[str, Any]) -> CalibratedForm:
    """Return the form `form_to_json` has written.

    Raises:
        KeyError, OverflowError, TypeError, ValueError: it is no such thing.
    """
    accuracy = value["accuracy"]
    return CalibratedForm(
        reach=QuantizedReach(value["reach"]),
        products=int(value["products"]),
        inaccurate=tuple(map(str, value["inaccurate"])),
        slow=tuple(map(str, value["slow"])),
        accuracy=math.nan if accuracy is None else float(accuracy),
        speedup=None if value["speedup"] is None else float(value["speedup"]),
    )


def allowed(quantizer: CalibratedQuantizer, lists: MixLists) -> tuple[str, ...]:
    """Return the products that the lists of `--modify_mixlist` allow to be lowered.

    A product of the gray list follows the one before it.
    """
    found: dict[str, bool] = {}
    for name in quantizer.products:
        listing = lists.listing(quantizer.op_type(name), (name,))
        if listing is Listing.FOLLOWS:
            before = quantizer.product_before(name)
            found[name] = before is None or found.get(before, True)
        else:
            found[name] = listing is Listing.ALLOWED
    return tuple(name for name, is_allowed in found.items() if is_allowed)


class _Chooser:
    """Writes, runs and times the forms of one model."""

    def __init__(self, tuning: TuneContext) -> None:
        self._tuning = tuning
        self._left_s = _share_of_time(tuning)
        self._faster: set[CalibratedForm] = set()
        self._writer = _FormWriter(tuning.scratch / "calibrated", tuning.subject.model.proto)
        constraint = tuning.settings.precision.constraint
        assert constraint is not None  # the mode has one
        self._constraint: AccuracyConstraint = constraint
        self._known: Results | None = None
        machine = tuning.machine.runner
        options = session_options(threads=machine.target.core_num, optimize=True)
        source = self._writer.untuned.model
        session = machine.device.open_session(source, options)
        self._quantizer = CalibratedQuantizer(
            tuning.subject.start,
            self._writer.work,
            list(tuning.subject.calibration.feeds(session)),
            reduce_range=machine.target.int8_sums is None,
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return allowed(self._quantizer, self._tuning.settings.precision.lists)

    @property
    def _reference(self) -> Results:
        if self._known is None:
            self._known = self._results(self._writer.untuned)
        return self._known

    def recalled(self, form: CalibratedForm) -> ChosenGraph | None:
        """Return a form as an earlier run has chosen it, None where it is not accurate any more."""
        names = frozenset(self._names)
        left = names.difference(form.inaccurate, form.slow)
        found, is_meant = None, (len(names), len(left)) == (form.products, form.in_integers)
        if is_meant and self._constraint.holds(self._accuracy(left, form.reach)):
            found = self._chosen(form, self._quantizer.quantised(left, form.reach))
        shutil.rmtree(self._writer.directory)
        return found

    def choose(self, save: SaveChoice) -> Calibration:
        """Return the choice; `save` is given it if there was time for all of it."""
        names = self._names
        forms: list[tuple[CalibratedForm, onnx.ModelProto]] = []
        for reach in QuantizedReach:
            found = self._accurate(names, reach)
            if found is not None:
                forms.append(found)
        if forms:
            best = max(forms, key=_speed)
            faster = self._without_slow(*best, names)
            if faster is not None:
                forms.append(faster)
        for form, _ in forms:
            self._tuning.progress.step(f"  {form.words}")
        shutil.rmtree(self._writer.directory)
        measured = tuple(form for form, _ in forms)
        faster_ones = [at for at, one in enumerate(measured) if one in self._faster]
        fastest = max(faster_ones, key=lambda at: _speed(forms[at]), default=None)
        if self._left_s() > 0 and all(form.speedup is not None for form in measured):
            save([*map(form_to_json, measured)], fastest)
        if fastest is None:
            self._tuning.progress.step("float32 stays: no form in integers is accurate and faster")
            return Calibration(forms=measured, chosen=None)
        return Calibration(forms=measured, chosen=self._chosen(*forms[fastest]))

    def _chosen(self, form: CalibratedForm, proto: onnx.ModelProto) -> ChosenGraph:
        before = self._tuning.subject.chosen
        return ChosenGraph(
            proto=proto,
            uses=before.uses if before is not None else (),
            precision=Precision.INT8,
            speedup=form.speedup or 0.0,
        )

    def _accurate(
        self, names: Sequence[str], reach: QuantizedReach
    ) -> tuple[CalibratedForm, onnx.ModelProto] | None:
        """Return the form with as many products in integers as the accuracy allows."""
        trade = hold(
            names,
            lambda lowered: self._accuracy(lowered, reach),
            self._constraint,
            in_time=lambda: self._left_s() > 0,
        )
        if not trade.lowered or not self._constraint.holds(trade.value):
            return None
        return self._measured(reach, names, trade.roll_back, (), trade)

    def _measured(
        self,
        reach: QuantizedReach,
        names: Sequence[str],
        inaccurate: tuple[str, ...],
        slow: tuple[str, ...],
        trade: Trade | None = None,
    ) -> tuple[CalibratedForm, onnx.ModelProto] | None:
        left = frozenset(names).difference(inaccurate, slow)
        accuracy = trade.value if trade is not None else self._accuracy(left, reach)
        if not left or not self._constraint.holds(accuracy):
            return None
        proto = self._quantizer.quantised(left, reach)
        gain = self._gain(proto)
        form = CalibratedForm(
            reach=reach,
            products=len(names),
            inaccurate=inaccurate,
            slow=slow,
            accuracy=accuracy,
            speedup=gain.median if gain is not None else None,
        )
        # rounding to integers costs accuracy, and noise alone makes every other form faster
        if gain is not None and gain.low > 1:
            self._faster.add(form)
        return form, proto

    def _without_slow(
        self, form: CalibratedForm, proto: onnx.ModelProto, names: Sequence[str]
    ) -> tuple[CalibratedForm, onnx.ModelProto] | None:
        """Return the form without products that take longer in integers, None if all gain."""
        if self._left_s() <= 0:
            return None
        in_float = self._product_us(self._tuning.subject.start, names)
        in_integers = self._product_us(proto, names)
        back = {*form.inaccurate}
        slow = tuple(
            name
            for name in names
            if name not in back and in_integers.get(name, 0.0) > in_float.get(name, math.inf)
        )
        if not slow:
            return None
        return self._measured(form.reach, names, form.inaccurate, slow)

    def _product_us(self, proto: onnx.ModelProto, names: Iterable[str]) -> Mapping[str, float]:
        """Return the time of the optimised nodes that compute each product."""
        tuning, wanted = self._tuning, frozenset(names)
        device, threads = tuning.machine.runner.device, tuning.machine.runner.target.core_num
        file = self._writer.work / "optimized.onnx"
        optimized = device.optimize(proto, file, threads=threads, tokens_as_images=False)
        file.unlink(missing_ok=True)
        with tuning.machine.runner.turns.measuring():
            profile = tuning.engine.profile_model(
                optimized,
                tuning.scratch,
                device.open_session,
                threads=threads,
                runs=RUNS,
                most_s=max(0.0, self._left_s()),
                inputs=tuning.subject.inputs,
            )
        origins, found = Origins(proto, optimized), dict[str, float]()
        for node in optimized.graph.node:
            owned = {node.name, *(one.name for one in origins.fused(node))} & wanted
            for name in owned:
                found[name] = found.get(name, 0.0) + profile.node_us.get(node.name, 0.0)
        return found

    def _accuracy(self, lowered: frozenset[str], reach: QuantizedReach) -> float:
        if not lowered:  # the form is the model itself
            return self._constraint.value(self._reference, self._reference)
        try:
            part = self._writer.write(self._quantizer.quantised(lowered, reach))
            return self._constraint.value(self._reference, self._results(part))
        except RunError as error:
            self._tuning.progress.detail(f"{reach.value} in integers: {error}")
            return math.nan

    def _results(self, part: ModelPart) -> Results:
        found: Results = self._tuning.machine.runner.call(
            "run_model", timeout_s=_TIMEOUT_S, part=part, inputs=self._tuning.subject.calibration
        )
        return found

    def _gain(self, proto: onnx.ModelProto) -> SpeedupEstimate | None:
        """Return the gain of a form over the imported model, from one process; None without one."""
        tuning, left_s = self._tuning, self._left_s
        threads, accept_busy = tuning.threads_validated, tuning.settings.accept_busy
        comparer = ModelComparer[_Form](
            self._writer,
            tuning.machine.runner,
            screen=variant_policy(threads, accept_busy=accept_busy, left_s=left_s()),
            final=final_policy(threads, accept_busy=accept_busy, left_s=left_s()),
            inputs=tuning.subject.inputs,
            left_s=left_s,
            streams=tuning.subject.streams,
        )
        try:
            gain = comparer.once((_Form(proto),))
        except TimeIsUpError:
            return None
        is_usable = accept_busy or gain.comparison.measurement.counts
        return gain.estimate if is_usable else None


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """A form as a part that may stay in a model or not."""

    proto: onnx.ModelProto
    name: str = "integers"
    kind: str = "integers"
    gain_us: float = 0.0


class _FormWriter:
    """Writes forms of a model into one directory, beside the model itself."""

    def __init__(self, directory: Path, original: onnx.ModelProto) -> None:
        directory.mkdir()
        self.directory = directory
        self.work = directory / "work"
        self.work.mkdir()
        with WeightStore(directory / WEIGHTS) as store:
            light = store.externalize(original)
            (directory / FALLBACK).write_bytes(light.SerializeToString(deterministic=True))

    @property
    def untuned(self) -> ModelPart:
        """The imported model."""
        return ModelPart(model=self.directory / FALLBACK)

    def write_model(self, kernels: Sequence[_Form], name: str = "form.onnx") -> ModelPart:
        """Write a form; without one, the imported model is meant."""
        return self.write(kernels[0].proto, name) if kernels else self.untuned

    def write(self, proto: onnx.ModelProto, name: str = "form.onnx") -> ModelPart:
        """Write a model that computes in integers."""
        with WeightStore(self.directory / f"{name}.weights") as store:
            light = store.externalize(proto)
        (self.directory / name).write_bytes(light.SerializeToString(deterministic=True))
        return ModelPart(model=self.directory / name, precision=Precision.INT8)


def _speed(found: tuple[CalibratedForm, onnx.ModelProto]) -> float:
    return found[0].speedup or 0.0


def _share_of_time(tuning: TuneContext) -> Callable[[], float]:
    """Return the seconds that are left for the choice."""
    stopwatch = tuning.time.stopwatch
    limit_s = stopwatch.limit_s
    if limit_s is None:
        return lambda: math.inf
    end_s = stopwatch.elapsed_s() + _TIME_SHARE * stopwatch.left_s()
    return lambda: min(end_s - stopwatch.elapsed_s(), stopwatch.left_s())
