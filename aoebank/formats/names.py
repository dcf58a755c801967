"""Names of bank files: parts of a name, and the pattern all operator banks share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aoebank.model.resolution import Query

CORE_TYPES = ("AiCore", "VectorCore")
OPERATOR_FOLDER = "unified_bank"
RUNTIME_SUFFIX = "_runtime_kb.json"
OPERATOR_GLOBS = tuple(f"*_{core_type}_*.json" for core_type in CORE_TYPES)

# soc_version may hold `_`, `-` and digits itself, so the last `_<number>_<core type>_` counts
_OPERATOR = re.compile(
    r"(?P<soc>.+)_(?P<cores>\d{1,9})_(?P<core_type>AiCore|VectorCore)_(?P<op_type>.+)",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BankName:
    """Parts of the name of a bank file; None for a part the name lacks."""

    # As the name spells it, see `Format.is_soc`; None where each record names its target.
    soc_version: str | None
    core_num: int | None = None  # Cores the operator was tuned for, not what the device has
    op_type: str | None = None
    core_type: str | None = None

    def __post_init__(self) -> None:
        if (
            self.soc_version == ""
            or self.op_type == ""
            or "/" in f"{self.soc_version}{self.op_type}"
        ):
            raise ValueError("soc_version and op_type must be file name parts")
        has_no_such_type = self.core_type is not None and self.core_type not in CORE_TYPES
        if has_no_such_type or (self.core_num is not None and self.core_num < 0):
            raise ValueError(f"no such cores: {self.core_num} {self.core_type}")


def parse_operator_name(name: str, suffix: str) -> BankName | None:
    """Return the parts of `<soc>_<cores>_<core type>_<op type><suffix>`, or None.

    >>> parse_operator_name("Ascend910_9391_24_AiCore_matmul.json", ".json").soc_version
    'Ascend910_9391'
    """
    match = _OPERATOR.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None
    if match is None or str(int(match["cores"])) != match["cores"]:  # `01` would not come back
        return None
    return BankName(
        soc_version=match["soc"],
        core_num=int(match["cores"]),
        core_type=match["core_type"],
        op_type=match["op_type"],
    )


def build_operator_name(target: BankName | Query, suffix: str) -> str:
    """Return the name of an operator bank, open parts in angle brackets."""
    cores, soc, op_type = open_parts(target)
    return f"{soc}_{cores}_{target.core_type or CORE_TYPES[0]}_{op_type}{suffix}"


def open_parts(target: BankName | Query) -> tuple[str, str, str]:
    """Return core number, soc_version and op_type, in angle brackets where they are open."""
    cores = "<core_num>" if target.core_num is None else str(target.core_num)
    return cores, target.soc_version or "<soc_version>", target.op_type or "<op_type>"


def plain_soc(soc_version: str) -> str:
    """Return a soc_version in a spelling that no two kinds of names differ in.

    >>> plain_soc("Ascend910B4-1")
    'ascend910b4_1'
    """
    return soc_version.lower().replace("-", "_")
