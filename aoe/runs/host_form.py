"""ONNX Runtime's optimised form of a quantised model, held against the model itself.

What a run compares everything with is the optimised form. Where that computes something else, the
run finds out which optimisation it is: the model is computed without it, and compared with that.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import onnx

from aoe.bank.choices import ChoiceKind, SaveChoice, StoredChoice
from aoe.errors import RunError, TurnTimeoutError
from aoe.execute.accuracy import MODEL_TOLERANCE
from aoe.execute.messages import ModelPart
from aoe.graph.rewrites.quantization import with_biases_in_scale
from aoe.graph.weights import WeightStore, is_outside
from aoe.om.file import MODEL, WEIGHTS
from aoe.operators.quantised import Quantisation, quantisations_of
from aoe.ort.optimizers import Optimizations, mark, marked
from aoe.tuner.tune_context import TuneContext

_MOST_S, _SHARE, _LEAST_S = 60.0, 0.1, 10.0
"""Most seconds for it, most of the time left, and what it may take of that in any case. It is two
sessions, and some twenty where anything is wrong."""
_SESSION_SHARE = 0.2
"""Of those, for the run of one session."""
_STEPS_TOLERANCE = 0.25
"""Share of the largest result that ONNX Runtime's forms may be apart where activations are rounded:
a step decided by the last bit is carried on from layer to layer, up to 5 % of the largest result of
a whole BERT. A fault shows in more."""
_LEVELS_TOLERANCE = 0.02
"""The same where weights alone are integers: ONNX Runtime multiplies weights of 4 bits by rows in 8
bits, three times as fast, which is 0.6 % of the largest result of one product off."""


def leave_out_what_is_wrong(tuning: TuneContext) -> None:
    """Mark the model of a run with the optimisations with which it is right, and tell.

    Models without integers are not looked at, nor those too large to be loaded again and again.
    Where the user allows products in 8 bits, so that ONNX Runtime may round to them, neither. With
    `--strict_fp32` it may round nothing that the model does not.
    """
    subject = tuning.subject
    proto = subject.model.proto
    integers = quantisations_of(node.op_type for node in proto.graph.node)
    is_meant = bool(integers) and marked(proto).are_all and not is_outside(proto)
    if not is_meant or tuning.settings.precision.mode.quantises:
        return
    rounds = bool(integers - {Quantisation.WEIGHTS})
    of_weights = MODEL_TOLERANCE if tuning.settings.precision.strict else _LEVELS_TOLERANCE
    tolerance = _STEPS_TOLERANCE if rounds else of_weights
    key = {
        "model": subject.model.sha256,
        "inputs": subject.inputs.digest(),
        "tolerance": tolerance,
        "onnxruntime": tuning.machine.versions.get("onnxruntime", ""),
    }

    def made(save: SaveChoice) -> tuple[Optimizations, str] | None:
        # a look-up alone takes no longer than the look-up
        looked_up = rounds and tuning.settings.lookup_only
        found = None if looked_up else _found(tuning, tolerance)
        if found is not None:
            save([{**found[0].to_json(), "how_far": found[1]}], 0)
        return found

    known = tuning.choice(ChoiceKind.OPTIMIZATIONS, key, recalled=_known, made=made)
    if known is not None:
        _mark(tuning, *known)


def _known(stored: StoredChoice) -> tuple[Optimizations, str] | None:
    """Return the optimisations of an earlier run, None where its record cannot be read."""
    if stored.chosen is None:
        return None
    form = stored.forms[stored.chosen]
    try:
        return Optimizations.from_json(form), str(form["how_far"])
    except (AttributeError, KeyError, TypeError):
        return None


def _found(tuning: TuneContext, tolerance: float) -> tuple[Optimizations, str] | None:
    """Return the optimisations with which the model is right, and how far it is off with all.

    None where it cannot be run, or not in time.
    """
    # biases that are misread are written anew, which costs nothing, see `aoe.runs.written_form`
    checked, _ = with_biases_in_scale(tuning.subject.model.proto)
    left_s = tuning.time.stopwatch.left_s()
    timeout_s = min(_MOST_S, max(_SHARE * left_s, min(_LEAST_S, left_s)))
    tuning.progress.step("holding ONNX Runtime's optimised form against the model")
    try:
        found: tuple[Optimizations, str] = tuning.machine.runner.call(
            "right_optimizations",
            timeout_s=timeout_s,
            untuned=_written(checked, Path(mkdtemp(prefix="host_form_", dir=tuning.scratch))),
            inputs=tuning.subject.inputs,
            most_s=_SESSION_SHARE * timeout_s,
            tolerance=tolerance,
        )
    except TurnTimeoutError:
        raise
    except RunError as error:
        tuning.progress.detail(f"ONNX Runtime's optimised form was not checked: {error}")
        return None
    return found


def _mark(tuning: TuneContext, found: Optimizations, how_far: str) -> None:
    if not how_far:
        return
    if found.are_all:
        tuning.progress.warn(
            f"ONNX Runtime's optimised form computes something else than the model ({how_far}), "
            "and no optimisation that can be left out is to blame: the tuned model computes what "
            "the optimised form does"
        )
        return
    for proto in (tuning.subject.model.proto, tuning.subject.written, tuning.subject.start):
        mark(proto, found)
    kept = "--precision_mode=allow_mix_precision_int8 takes the optimised form as it is"
    tuning.progress.warn(f"{found.wrong_warning(how_far)}; {kept}")


def _written(proto: onnx.ModelProto, folder: Path) -> ModelPart:
    with WeightStore(folder / WEIGHTS) as store:
        light = store.externalize(proto)
    (folder / MODEL).write_bytes(light.SerializeToString(deterministic=True))
    return ModelPart(model=folder / MODEL)
