"""Another form in which a whole model is tuned, chosen by measurement.

ONNX Runtime computes int8 activations in integers on Arm, and uint8 ones on most x86 CPUs. A model
as it was trained has parallel branches that are one convolution. Such a model runs beside its other
form, in pairs, and the faster one is tuned. So does one with operators ONNX Runtime has no kernel
of, beside the form with their functions, which it optimises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import onnx

from aoe.bank.choices import Choice, ChoiceKind, SaveChoice, StoredChoice
from aoe.device.protocol import Device
from aoe.errors import RunError, RunTimeoutError
from aoe.execute.messages import ModelPart
from aoe.execute.tasks import ComparisonTerms, ModelComparison
from aoe.graph.rewrites.always import GROUPS_RULE as NORMALIZATION_RULE
from aoe.graph.rewrites.always import rewritten, rewritten_and_counted
from aoe.graph.rewrites.channels import FILTERS_RULE, GROUPS_RULE
from aoe.graph.rewrites.convolution import PARALLEL_RULE
from aoe.graph.rewrites.half_precision import is_half_precision
from aoe.graph.rewrites.lookups import TABLES_RULE
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.graph.rewrites.quantization import (
    BIAS_RULE,
    with_biases_in_scale,
    with_folded_constants,
    with_uint8_activations,
)
from aoe.graph.weights import WeightStore, is_outside, laid_out
from aoe.measurement.estimates import estimate_speedup
from aoe.om.file import MODEL, WEIGHTS
from aoe.ort.calibration import is_quantised
from aoe.ort.offline_optimization import with_functions_in_place
from aoe.tuner.chosen_graph import WrittenForm, form_before
from aoe.tuner.policies import screen_policy
from aoe.tuner.precision.settings import PrecisionSettings
from aoe.tuner.tune_context import TuneContext

_TIMEOUT_S = 120.0
_SHARE, _LEAST_S = 0.1, 20.0
"""Most of the time left that the comparison may take, and what it may take in any case: the whole
model is compared again later."""
_GROWTH = 0.1
"""Most bytes of float values in the place of codes, as a share of all constants: codes are what a
model was quantised for."""
_OF_FLOATS = {
    PARALLEL_RULE: (0, 8, 16),
    FILTERS_RULE: (8, 16),
    GROUPS_RULE: (16,),
    TABLES_RULE: (0, 8, 16),
}
"""Rules for networks in float32 that take no kernel away, and the channels of blocks (0 without a
blocked layout) with which they do less: groups of 8 are whole blocks of 8."""
_NOT_STRICT: tuple[RewriteRule, ...] = (PARALLEL_RULE, GROUPS_RULE)
"""They make NaN of an infinity, or an infinity of NaN."""
_NOT_INTEGERS: tuple[RewriteRule, ...] = (PARALLEL_RULE,)
"""The weight of 1 of a tensor that is added would set the range of all others in int8."""
_EXCLUDED: tuple[tuple[RewriteRule, ...], ...] = (_NOT_INTEGERS, _NOT_STRICT)
"""What runs leave out in a precision of their own."""
_UINT8_ARCHITECTURES = ("x86-64",)
"""Where ONNX Runtime writes int8 activations as uint8. Source: its `QDQS8ToU8Transformer`."""


def with_faster_form(tuning: TuneContext, earlier: Sequence[object] = ()) -> TuneContext:
    """Return the run with the form of its model; itself for a model of which there is no other.

    Args:
        tuning: The run of a mode.
        earlier: Results of the modes before it; the first of them has chosen for all.
    """
    form = form_before(earlier) or _chosen_form(tuning)
    if form is None:
        return tuning
    return replace(tuning, subject=replace(tuning.subject, written_as=form))


def other_form(
    imported: onnx.ModelProto,
    device: Device,
    scratch: Path,
    *,
    threads: int,
    without: Collection[RewriteRule] = (),
) -> WrittenForm | None:
    """Return the form of a model that is tried beside it, None where there is none.

    Args:
        imported: The model.
        device: Optimises it: what is dequantised then in every run is folded.
        scratch: Directory for files.
        threads: Of its sessions.
        without: Rules that are not applied.
    """
    block = device.channel_block()
    rules = [rule for rule, blocks in _OF_FLOATS.items() if block in blocks and rule not in without]
    plain, counts = rewritten_and_counted(imported, *rules, BIAS_RULE, tidy=True)
    plain, functions = _with_functions(plain, device, scratch)
    proto = written = with_uint8_activations(plain)
    if written is not plain or _dequantized(imported):
        try:
            proto = _folded(written, device, scratch, threads)
        except RunError:  # of the imported model, that is told where it is tuned
            return None
    if proto is imported:
        return None
    return WrittenForm(
        proto=proto,
        is_uint8=written is not plain,
        constants=_dequantized(written) - _dequantized(proto),
        rules={rule: count for rule, count in counts.items() if count},
        functions=functions,
    )


def _with_functions(
    proto: onnx.ModelProto, device: Device, scratch: Path
) -> tuple[onnx.ModelProto, Counter[str]]:
    """Return a model with functions in the place of operators, and the number of each of these.

    Group normalisations that a rule writes in fewer operators are no functions then.
    """
    folder = Path(mkdtemp(prefix="functions_", dir=scratch))
    written = rewritten(proto, NORMALIZATION_RULE)
    try:
        found, counts = with_functions_in_place(written, folder / MODEL, device.open_session)
    except RunError:  # of the imported model, that is told where it is tuned
        return proto, Counter()
    return (found, counts) if counts else (proto, counts)


def other_forms(
    imported: onnx.ModelProto, device: Device, scratch: Path, *, threads: int
) -> Iterator[WrittenForm]:
    """Yield the forms of a model that runs of any precision try beside it, each once."""
    whole = other_form(imported, device, scratch, threads=threads)
    if whole is None:
        return
    yield whole
    known = {whole.what}
    for rules in _EXCLUDED:
        # a form takes an optimisation of the model: rules without a place in it need no other
        if not any(rule.name in whole.rules for rule in rules):
            continue
        form = other_form(imported, device, scratch, threads=threads, without=rules)
        if form is not None and form.what not in known:
            known.add(form.what)
            yield form


def _chosen_form(tuning: TuneContext) -> WrittenForm | None:
    target, device = tuning.machine.runner.target, tuning.machine.runner.device
    imported = tuning.subject.model.proto
    corrected = _corrected(imported)
    if corrected is not None:
        misread = ", ".join(node.name or node.output[0] for node in corrected[1])
        tuning.progress.warn(
            f"ONNX Runtime reads the integer bias of {misread} in another scale than it has, and "
            "computes something else: it is written in the scale of the products"
        )
    without = _excluded(tuning.settings.precision)
    form = other_form(imported, device, tuning.scratch, threads=target.core_num, without=without)
    if form is None:
        return None
    chosen = tuning.choice(
        ChoiceKind.FORM,
        _key(tuning, form),
        recalled=partial(_as_stored, form),
        made=partial(_taken, tuning, form),
    )
    if chosen is not None and corrected is not None:
        chosen = replace(corrected[0] if chosen.proto is None else chosen, is_needed=True)
    tuning.progress.step(str(chosen))
    return chosen


def _taken(tuning: TuneContext, form: WrittenForm, save: SaveChoice) -> WrittenForm:
    """Return the form as it is chosen now, by measurement."""
    if tuning.settings.lookup_only:  # nothing is measured: as ONNX Runtime does where it can
        soc_version = tuning.machine.runner.target.soc_version
        is_usual = soc_version.startswith(_UINT8_ARCHITECTURES) or not form.is_uint8
        return form if is_usual else replace(form, proto=None)
    form = _measured(tuning, form)
    if form.speedup is not None:
        measured = {"form": form.what, "speedup": form.speedup}
        save([measured], None if form.proto is None else 0)
    return form


def _key(tuning: TuneContext, form: WrittenForm) -> Choice:
    """Return all that a choice depends on, but for the machine."""
    subject = tuning.subject
    return {
        "model": subject.model.sha256,
        "form": form.what,
        "shapes": {name: [*shape] for name, shape in sorted(subject.inputs.shapes.items())},
        "streams": subject.streams,
        "onnxruntime": tuning.machine.versions.get("onnxruntime", ""),
    }


def _as_stored(form: WrittenForm, stored: StoredChoice) -> WrittenForm:
    """Return a form as an earlier run has chosen: taken or not, with its gain then."""
    speedup = stored.forms[0].get("speedup") if stored.forms else None
    return replace(
        form,
        proto=None if stored.chosen is None else form.proto,
        speedup=float(speedup) if isinstance(speedup, int | float) else None,
        is_stored=True,
    )


def _corrected(imported: onnx.ModelProto) -> tuple[WrittenForm, list[onnx.NodeProto]] | None:
    """Return the form without biases that ONNX Runtime misreads, and the operators they are of.

    It takes the place of a model that is faster, and computes something else. None where ONNX
    Runtime computes what the model says.
    """
    scaled, rescaled = with_biases_in_scale(imported)
    misread = [node for node in rescaled if node.op_type == "Gemm"]
    form = WrittenForm(proto=scaled, rules={BIAS_RULE.name: len(rescaled)})
    return (form, misread) if misread else None


def _excluded(precision: PrecisionSettings) -> tuple[RewriteRule, ...]:
    """Return the rules a precision leaves out."""
    if precision.strict:
        return _NOT_STRICT
    return _NOT_INTEGERS if precision.mode.quantises else ()


def _folded(proto: onnx.ModelProto, device: Device, scratch: Path, threads: int) -> onnx.ModelProto:
    """Return a model without the few constants ONNX Runtime would dequantise in every run.

    Raises:
        RunError: the model cannot be run.
    """
    folder = Path(mkdtemp(prefix="form_", dir=scratch))
    light = laid_out(proto, folder / WEIGHTS)
    file = folder / "optimized.onnx"
    optimized = device.optimize(light, file, threads=threads, tokens_as_images=False)
    return with_folded_constants(proto, optimized, _GROWTH)


def _dequantized(proto: onnx.ModelProto) -> int:
    return sum(node.op_type == "DequantizeLinear" for node in proto.graph.node)


def _measured(tuning: TuneContext, form: WrittenForm) -> WrittenForm:
    """Return the form with its gain; without one that is proven, the imported model stays.

    What is no verdict has no gain, so that a later run compares again.
    """
    tuning.progress.step("comparing the model with another form of it")
    found = _comparison(tuning, form)
    if found is None:
        return replace(form, proto=None)
    if (why := _why_undecided(tuning, found)) is not None:
        tuning.progress.warn(f"{why}: the imported form stays")
        return replace(form, proto=None)
    estimate = estimate_speedup(found.measurement)
    form = replace(form, speedup=estimate.median)
    return replace(form, comparison=found) if estimate.low > 1 else replace(form, proto=None)


def _why_undecided(tuning: TuneContext, found: ModelComparison) -> str | None:
    """Return the reason for which a comparison with another form counts for nothing, or None.

    What a model that rounds to integers computes in another form is for the comparison of the whole
    model to judge: ONNX Runtime's own forms are steps apart.
    """
    measurement, deviation = found.measurement, found.deviation
    if not deviation.acceptable and not is_quantised(tuning.subject.model.proto):
        return f"the other form computes something else, {deviation.detail}"
    if not (measurement.counts or tuning.settings.accept_busy):
        return f"not decided, the machine was busy: {measurement.busy_words}"
    return None


def _comparison(tuning: TuneContext, form: WrittenForm) -> ModelComparison | None:
    assert form.proto is not None
    subject, runner = tuning.subject, tuning.machine.runner
    folder = Path(mkdtemp(prefix="form_", dir=tuning.scratch))
    with WeightStore(folder / WEIGHTS) as store:
        baseline, tuned = (
            _part(store, proto, folder / name)
            for proto, name in ((subject.model.proto, "imported.onnx"), (form.proto, "form.onnx"))
        )
    left_s = tuning.time.stopwatch.left_s()
    try:
        with runner.turns.measuring():
            found: ModelComparison = runner.call(
                "compare_models",
                timeout_s=min(_TIMEOUT_S, max(_SHARE * left_s, min(_LEAST_S, left_s))),
                baseline=baseline,
                tuned=tuned,
                policy=screen_policy(tuning.threads_validated),
                inputs=subject.inputs,
                terms=ComparisonTerms(streams=subject.streams),
            )
    except RunTimeoutError:
        tuning.progress.warn("the time limit left no time for that: the imported form stays")
        return None
    except RunError as error:
        tuning.progress.warn(f"the other form cannot be run, the imported one stays: {error}")
        return None
    return found


def _part(store: WeightStore, proto: onnx.ModelProto, file: Path) -> ModelPart:
    file.write_bytes(store.externalize(proto).SerializeToString(deterministic=True))
    return ModelPart(model=file, is_large=is_outside(proto), is_narrow=is_half_precision(proto))
