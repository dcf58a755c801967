"""What the reports of modes that tune a model file say alike: where it is, and what it gained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoe.measurement import QUIET_SHARE

if TYPE_CHECKING:
    from aoe.tuning.model_mode import ModelTuning
    from aoebank import Text

NOT_MEASURED = "only looked up, nothing was measured"
"""Why a run that only looks up claims no gain."""
_NAMED = 4
"""Parts that are named where all went for the same reason."""


def places_document(
    result: ModelTuning[Any], summary: Mapping[str, object]
) -> Mapping[str, object]:
    """Return where everything is, and the summary."""
    return {
        "om": str(result.om_file),
        "results": str(result.places.results),
        "result_file": str(result.result_file),
        "bank": str(result.bank),
        "summary": summary,
    }


def gain_line(result: ModelTuning[Any], precision: str = "") -> str:
    """Return how fast the tuned model is."""
    estimate = result.judgement.estimate
    before, after = whole_model_figure(result), whole_model_figure(result, result.speedup)
    return (
        f"whole model{precision}: {before} -> {after}, "
        f"{estimate.median:.3f}x (95 % interval {estimate.low:.3f} to {estimate.high:.3f}, "
        f"{estimate.pairs} pairs, {_conditions(result)}, "
        f"against ONNX Runtime with {result.optimizations})"
    )


def looked_up_line(parts: str, precision: str = "") -> str:
    """Return what the tuned model is of where nothing was timed.

    Args:
        parts: How many of which, `3 kernels`.
        precision: What the model is computed in, in words.
    """
    return f"whole model{precision}: {parts} of the bank, looked up and not measured"


def unchanged_line(result: ModelTuning[Any], why: str) -> str:
    """Return how fast a model is that is left as it is: a ratio would only be noise."""
    return (
        f"whole model: unchanged, {why} ({whole_model_figure(result)}, "
        f"{_conditions(result)}, ONNX Runtime with {result.optimizations})"
    )


def write_load(text: Text, result: ModelTuning[Any]) -> None:
    """Write a line about a machine too busy for its figures to be believed."""
    load = result.judgement.comparison.measurement.load
    if load is not None and load.use.given_share < QUIET_SHARE:
        text.line(f"do not believe these figures, the machine was busy: {load}")


def write_dropped(text: Text, result: ModelTuning[Any]) -> None:
    """Write a line for each reason for which the whole model did without parts, and a way out."""
    names_of: dict[str, list[str]] = {}
    for name, reason in result.judgement.dropped.items():
        names_of.setdefault(reason, []).append(name)
    for reason, names in names_of.items():
        text.line(f"dropped {_listed(names)}: {reason}")
    if result.judgement.undecided:
        text.line("what was found is in the bank; the same command again goes on from there")


def _listed(names: Sequence[str]) -> str:
    """Return names, of many the first ones and how many more there are."""
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"


def _conditions(result: ModelTuning[Any]) -> str:
    if result.streams > 1:
        return f"{result.streams} streams of one thread at the same time"
    return f"{result.target.core_num} threads"


def whole_model_figure(result: ModelTuning[Any], speedup: float = 1.0) -> str:
    """Return the time of a model so many times as fast as the untuned one, or its throughput."""
    from aoe.results.files import runs_per_s
    from aoe.tuning.model_mode import whole_model_ms

    if result.streams == 1:
        return f"{result.baseline_ms / speedup:.3f} ms"
    before_ms = whole_model_ms(result.judgement, result.streams)
    if before_ms is None:
        return "throughput not measured"
    return f"{runs_per_s(before_ms / speedup):.3f} runs/s"
