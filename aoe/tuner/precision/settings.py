"""What a user allows: `--precision_mode` and the options that go with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.errors import OptionError, TargetError
from aoe.target import Target
from aoe.tuner.precision.mixlist import NO_LISTS, MixLists, read_mix_lists
from aoe.workload import Precision

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet
    from aoe.tuner.precision.constraint import AccuracyConstraint

MODE_OPTION, LISTS_OPTION, STRICT_OPTION = "--precision_mode", "--modify_mixlist", "--strict_fp32"


class PrecisionMode(StrEnum):
    """How far the tuner may go below float32. Source: CANN's `--precision_mode`."""

    KEEP = "must_keep_origin_dtype"
    BFLOAT16 = "allow_fp32_to_bf16"
    """Products in bfloat16 wherever the lists allow it and there is a kernel."""
    MIXED_BFLOAT16 = "allow_mix_precision_bf16"
    """Both are measured, operator by operator, and bfloat16 has to be faster."""
    MIXED_INT8 = "allow_mix_precision_int8"
    """float32, bfloat16 where the CPU has it, and int8: a lower one has to be faster."""
    MIXED_INT4 = "allow_mix_precision_int4"
    """The same, and weights of 4 bits in products of a few rows; none of CANN's modes."""

    @property
    def lowered(self) -> tuple[Precision, ...]:
        """Precisions below float32 that are allowed, the highest first."""
        if self in (PrecisionMode.MIXED_INT8, PrecisionMode.MIXED_INT4):
            few_bits = (Precision.INT4,) if self is PrecisionMode.MIXED_INT4 else ()
            return Precision.BFLOAT16, Precision.INT8, *few_bits
        return () if self is PrecisionMode.KEEP else (Precision.BFLOAT16,)

    @property
    def quantises(self) -> bool:
        """True if products by constant matrices, and these alone, may be quantised."""
        return Precision.INT8 in self.lowered

    @property
    def lowest(self) -> Precision:
        """The lowest precision that is allowed: what the CPU has to have."""
        return self.lowered[-1] if self.lowered else Precision.FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionSettings:
    """What precision a run may use.

    Attributes:
        mode: How far it may go.
        lists: Which operators are exempt.
        strict: True to leave out what spreads rounding errors or special values (Winograd).
        accuracy: What the whole model has to keep, None for what `constraint` says.
        calibration: Inputs that is checked on; none for those the model is judged on.
    """

    mode: PrecisionMode = PrecisionMode.KEEP
    lists: MixLists = NO_LISTS
    strict: bool = False
    accuracy: AccuracyConstraint | None = None
    calibration: tuple[InputSet, ...] = ()

    def __post_init__(self) -> None:
        if self.strict and self.mode is not PrecisionMode.KEEP:
            raise OptionError(
                STRICT_OPTION,
                "contradicts a lower precision",
                got=f"{MODE_OPTION}={self.mode.value}",
                expected=f"{MODE_OPTION}={PrecisionMode.KEEP.value}",
            )

    @property
    def constraint(self) -> AccuracyConstraint | None:
        """What holds for the whole model: below float32 there is a default."""
        if self.accuracy is None and self.mode.lowest.is_lower:
            from aoe.tuner.precision.constraint import DEFAULT

            return DEFAULT
        return self.accuracy

    def check(self, target: Target) -> None:
        """Refuse a precision the processor has no instructions for.

        Raises:
            TargetError: it has none.
        """
        if self.mode.lowest in target.precisions or not self.mode.lowest.is_lower:
            return
        raise TargetError(
            MODE_OPTION,
            f"this CPU has no {self.mode.lowest.value} instructions that kernels could use",
            got=f"{self.mode.value} on {target.cpu_model}",
            expected=_NEEDED,
            hint=f"leave {MODE_OPTION} out to compute in float32",
        )


_NEEDED = "AVX512-BF16 with what Zen 4 or Sapphire Rapids have besides; on Arm bf16"
"""Instructions bfloat16 needs, in words."""
KEEP_FLOAT32 = PrecisionSettings()
"""What holds if nothing is asked for."""


def parse_precision(
    mode: str | None = None,
    lists: Path | None = None,
    *,
    strict: bool = False,
    accuracy: str | None = None,
    calibration: tuple[InputSet, ...] = (),
) -> PrecisionSettings:
    """Return the settings of a command line.

    Args:
        mode: Text of `--precision_mode`, None for the default.
        lists: File of `--modify_mixlist`.
        strict: Whether `--strict_fp32` is given.
        accuracy: Text of `--accuracy`.
        calibration: Sets of `--calibration`.

    Raises:
        OptionError: a value that cannot be meant, or options that contradict each other.
    """
    chosen = _parse_mode(mode) if mode else PrecisionMode.KEEP
    if lists is not None and chosen is PrecisionMode.KEEP:
        raise OptionError(
            LISTS_OPTION,
            "says nothing while float32 is kept",
            got=lists,
            hint=f"{MODE_OPTION}={PrecisionMode.MIXED_BFLOAT16.value}",
        )
    if calibration and accuracy is None and chosen is PrecisionMode.KEEP:
        raise OptionError(
            "--calibration",
            "says nothing without an accuracy to keep",
            hint=f"--accuracy='cosine>=0.999', or {MODE_OPTION}={PrecisionMode.MIXED_BFLOAT16}",
        )
    return PrecisionSettings(
        mode=chosen,
        lists=read_mix_lists(lists) if lists is not None else NO_LISTS,
        strict=strict,
        accuracy=_parse_accuracy(accuracy) if accuracy is not None else None,
        calibration=calibration,
    )


def _parse_accuracy(text: str) -> AccuracyConstraint:
    from aoe.tuner.precision.constraint import parse_accuracy

    return parse_accuracy(text)


def _parse_mode(text: str) -> PrecisionMode:
    if text in tuple(PrecisionMode):
        return PrecisionMode(text)
    hint = _OF_CANN.get(text)
    raise OptionError(
        MODE_OPTION,
        "unknown" if hint is None else "not available here",
        got=text,
        expected=", ".join(PrecisionMode),
        hint=hint,
    )


_NO_FLOAT16 = (
    "there are no float16 kernels: --precision_mode=allow_fp32_to_bf16 or allow_mix_precision_int8 "
    "take what is faster and accurate enough"
)
_OF_CANN = {
    **dict.fromkeys(
        (
            *("allow_mix_precision", "allow_mix_precision_fp16", "allow_fp32_to_fp16"),
            *("force_fp16", "cube_fp16in_fp32out", "fp16", "mixed_float16"),
            *("cube_hif8", "mixed_hif8"),
        ),
        _NO_FLOAT16,
    ),
    "force_fp32": "leave it out: a model is computed in the types it has",
    "mixed_bfloat16": "it is of --precision_mode_v2: --precision_mode=allow_mix_precision_bf16",
    "origin": "it is of --precision_mode_v2: --precision_mode=must_keep_origin_dtype",
}
"""What to do instead of a mode. Source: CANN, --precision_mode and --precision_mode_v2."""
