"""Precision a user allows: `--precision_mode` and its options, with `--modify_mixlist=FILE`.

A file of `--modify_mixlist` is CANN's lists of operators in mixed precision:
{"black-list": {"to-add": ["MatMul"]}, "white-list": {"to-add": [...], "to-remove": [...]},
 "gray-list": {...}}. An operator of the white list may be computed in the lower precision, one of
the black list may not, one of the gray list follows the operator before it. What is removed from
the white or the black list is gray. All that have kernels of lower precision are white at first.
Source: CANN, ATC option `--modify_mixlist`; node names and wildcards are an addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.errors import OptionError, TargetError
from aoe.target import Target
from aoe.workload import Precision

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet
    from aoe.tuner.precision.constraint import AccuracyConstraint
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any

_OPTION = "--modify_mixlist"
_ADD, _REMOVE = "to-add", "to-remove"
_FORM = '{"black-list": {"to-add": ["MatMul"]}}'
_ONNX_NAMES = {
    **dict.fromkeys(("Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2D", "FusedConv"), "Conv"),
    **dict.fromkeys(("Conv2DTranspose", "Conv3DTranspose", "Deconvolution"), "ConvTranspose"),
    **dict.fromkeys(("MatMulV2", "MatMulV3", "FusedMatMul", "TransposeMatMul"), "MatMul"),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), "MatMul"),
    **dict.fromkeys(("GemmV2", "FusedGemm"), "Gemm"),
}


class Listing(StrEnum):
    """The list an operator is in."""

    ALLOWED = "white-list"
    DENIED = "black-list"
    FOLLOWS = "gray-list"


_REMOVED = {
    Listing.ALLOWED: Listing.FOLLOWS,
    Listing.DENIED: Listing.FOLLOWS,
    Listing.FOLLOWS: Listing.ALLOWED,
}
"""Where an operator is that was taken from a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixLists:
    """Operators that may be computed in a lower precision."""

    # By operator type, node name, or pattern of node names (`*`, `?`, `[...]`).
    listings: Mapping[str, Listing] = field(default_factory=dict)

    def listing(self, op_type: str, names: tuple[str, ...]) -> Listing:
        """Return the list of an operator: by its name, else a pattern of names, else its type.

        >>> lists = MixLists(listings={"MatMul": Listing.DENIED, "/head/*": Listing.ALLOWED})
        >>> lists.listing("MatMulV2", ("/head/MatMul",)).value
        'white-list'
        """
        exact = [name for name in names if name in self.listings]
        patterns = (
            entry for entry in self.listings if any(fnmatchcase(name, entry) for name in names)
        )
        entry = exact[0] if exact else next(patterns, onnx_name(op_type))
        return self.listings.get(entry, Listing.ALLOWED)


NO_LISTS = MixLists()
"""Every operator is in the list it is in at first."""


def onnx_name(op_type: str) -> str:
    """Return ONNX's name of an operator type of CANN or ONNX Runtime."""
    return _ONNX_NAMES.get(op_type, op_type)


def read_mix_lists(file: Path) -> MixLists:
    """Return the lists of a file.

    Raises:
        OptionError: it cannot be read, or says what cannot be meant.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise OptionError(
            f"{_OPTION} {file}", f"cannot be read: {what}", expected=f"JSON as {_FORM}"
        ) from error
    listings: dict[str, Listing] = {}
    added: dict[str, Listing] = {}
    for listing, change, entry in _entries(file, value):
        name = onnx_name(entry)
        if change == _REMOVE:
            listings.setdefault(name, _REMOVED[listing])
        elif added.setdefault(name, listing) is not listing:
            raise OptionError(f"{_OPTION} {file}", "an operator is added to two lists", got=entry)
    return MixLists(listings=listings | added)


def _entries(file: Path, value: Any) -> Iterator[tuple[Listing, str, str]]:
    """Yield list, change and operator of every line of a file."""
    for name, changes in _members(file, "", value, tuple(Listing)):
        for change, entries in _members(file, name, changes, (_ADD, _REMOVE)):
            if not isinstance(entries, list):
                raise _wrong(file, f"{name}.{change}", entries, "a list of operators")
            for entry in entries:
                if not isinstance(entry, str) or not entry:
                    raise _wrong(file, f"{name}.{change}", entry, "an operator type or a node name")
                yield Listing(name), change, entry


def _members(
    file: Path, place: str, value: Any, known: tuple[str, ...]
) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _wrong(file, place, value, f"an object with {', '.join(known)}")
    for name, item in value.items():
        if name not in known:
            raise _wrong(file, place, name, " or ".join(known))
        yield name, item


def _wrong(file: Path, place: str, got: Any, expected: str) -> OptionError:
    where = f"{_OPTION} {file}{': ' + place if place else ''}"
    return OptionError(where, "not a list of CANN", got=got, expected=expected)


MODE_OPTION, LISTS_OPTION, STRICT_OPTION = "--precision_mode", "--modify_mixlist", "--strict_fp32"


class PrecisionMode(StrEnum):
    """Precisions below float32 the tuner may use. Source: CANN's `--precision_mode`."""

    KEEP = "must_keep_origin_dtype"
    FLOAT32 = "force_fp32"
    """What is float16 or bfloat16 in a model is computed in float32, as in all modes below."""
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
        keeps = self in (PrecisionMode.KEEP, PrecisionMode.FLOAT32)
        return () if keeps else (Precision.BFLOAT16,)

    @property
    def widens(self) -> bool:
        """True if what is narrower than float32 in a model may be computed in float32."""
        return self is not PrecisionMode.KEEP

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
    """Precisions a run may use."""

    mode: PrecisionMode = PrecisionMode.KEEP  # How far it may go
    lists: MixLists = NO_LISTS  # Which operators are exempt
    # True to leave out what spreads rounding errors or special values (Winograd).
    strict: bool = False
    # What the whole model has to keep, None for what `constraint` says.
    accuracy: AccuracyConstraint | None = None
    # Inputs that is checked on; none for those the model is judged on.
    calibration: tuple[InputSet, ...] = ()

    def __post_init__(self) -> None:
        if self.strict and self.mode.lowest.is_lower:
            raise OptionError(
                STRICT_OPTION,
                "contradicts a lower precision",
                got=f"{MODE_OPTION}={self.mode.value}",
                expected=f"{MODE_OPTION}={PrecisionMode.KEEP.value}",
            )

    @property
    def constraint(self) -> AccuracyConstraint | None:
        """Constraint on the whole model: below float32 there is a default."""
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
    if lists is not None and not chosen.lowest.is_lower:
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
    "kernels compute in float32: --precision_mode=allow_fp32_to_bf16 or allow_mix_precision_int8 "
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
    "mixed_bfloat16": "it is of --precision_mode_v2: --precision_mode=allow_mix_precision_bf16",
    "origin": "it is of --precision_mode_v2: --precision_mode=must_keep_origin_dtype",
}
"""What to do instead of a mode. Source: CANN, --precision_mode and --precision_mode_v2."""
