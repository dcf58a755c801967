"""Names of operator bank files: `<soc>_<core>_<core type>_<op type><suffix>`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

CORE_TYPES = ("AiCore", "VectorCore")
UNIFIED_SUFFIX = ".json"
RUNTIME_SUFFIX = "_runtime_kb.json"

# soc_version may hold `_`, `-` and digits itself, so the last `_<number>_<core type>_` counts
_PATTERN = re.compile(
    r"(?P<soc>.+)_(?P<core>\d{1,9})_(?P<core_type>AiCore|VectorCore)_(?P<op_type>.+?)"
    r"(?P<suffix>(?:_runtime_kb)?\.json)",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFileName:
    """The parts of an operator bank file name; `soc_version` is kept verbatim.

    Attributes:
        core_num: Cores the operator was tuned for, not what the device has.
        suffix: `UNIFIED_SUFFIX` or `RUNTIME_SUFFIX`.
    """

    soc_version: str
    core_num: int
    op_type: str
    core_type: str = "AiCore"
    suffix: str = UNIFIED_SUFFIX

    def __post_init__(self) -> None:
        if not self.soc_version or not self.op_type or "/" in f"{self.soc_version}{self.op_type}":
            raise ValueError("soc_version and op_type must be file name parts")
        if self.core_num < 0 or self.core_type not in CORE_TYPES:
            raise ValueError(f"no such cores: {self.core_num} {self.core_type}")

    def __str__(self) -> str:
        return f"{self.soc_version}_{self.core_num}_{self.core_type}_{self.op_type}{self.suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetName:
    """What the name of a bank file of another layout tells; None where it is silent.

    Attributes:
        soc_version: Verbatim; graph banks spell it in lower case, `-` as `_`.
    """

    soc_version: str
    core_num: int | None = None
    op_type: str | None = None
    core_type: str | None = None


BankName: TypeAlias = BankFileName | TargetName


def find_bank_file_name(name: str) -> BankFileName | None:
    """Return the parts of `name`, or None when it is not such a name.

    >>> find_bank_file_name("Ascend910_9391_24_AiCore_matmul.json").soc_version
    'Ascend910_9391'
    """
    match = _PATTERN.fullmatch(name)
    if match is None:
        return None
    parsed = BankFileName(
        soc_version=match["soc"],
        core_num=int(match["core"]),
        core_type=match["core_type"],
        op_type=match["op_type"],
        suffix=match["suffix"],
    )
    return parsed if str(parsed) == name else None  # `01` cores would not come back
