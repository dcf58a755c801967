"""What a run of operator tuning gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aoe.graph.regions import Refusal
from aoe.ort.profile import ModelProfile
from aoe.results.opat import OpatReport
from aoe.tuning.opat.judge import Judgement
from aoe.tuning.opat.operator import TunedOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class OpatResult:
    """What a run of operator tuning gave.

    Attributes:
        om_file: The tuned model.
        operators: Every operator looked at, largest share of time first.
        refusals: Nodes left to ONNX Runtime, with the reason.
        judgement: What held up in the whole model, and its measured speed-up.
        profile: Of the untuned model.
        tuned_profile: Of the tuned model.
        report: Contents of AOE's result file.
        seconds: Duration of the run.
    """

    om_file: Path
    operators: tuple[TunedOperator, ...]
    refusals: tuple[Refusal, ...]
    judgement: Judgement
    profile: ModelProfile
    tuned_profile: ModelProfile
    report: OpatReport
    seconds: float
