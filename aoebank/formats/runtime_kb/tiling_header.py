"""The structs of a `*_tuning_tiling.h` header of ops-nn: what is hashed, what is read.

Facts are taken from a header, names, C types, defaults and their order, no text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from aoebank.formats.release import TilingRow
from aoebank.formats.runtime_kb.operator_schema import C_TYPES

SUFFIX = "_tuning_tiling.h"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KEY = re.compile(r"\bstruct\s+\w*Args\w*\s*\{(.*?)\}\s*;", re.DOTALL)
_MEMBER = re.compile(r"([\w:]+)\s+(\w+)\s*(?:=\s*[\w:]+\s*)?;")
_TILING = re.compile(
    r"\bBEGIN_TUNING_TILING_DEF\s*\(\s*(\w+)\s*\)(.*?)\bEND_TUNING_TILING_DEF\b", re.DOTALL
)
_FIELD = re.compile(
    r"\bTUNING_TILING_DATA_FIELD_DEF\w*\s*"
    r"\(\s*([\w:]+)\s*,\s*(\w+)\s*(?:,\s*(-?\w+)\s*)?\)"
)
_CLASS = re.compile(r"Tun+erTiling$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TilingHeader:
    """The structs of one operator.

    Attributes:
        name: Of the tiling class, without its ending: the operator, or a start of it.
        workload: Members of the key struct.
        strategy: Members of the tiling struct.
    """

    name: str
    workload: tuple[TilingRow, ...]
    strategy: tuple[TilingRow, ...]

    def op(self, known: Collection[str]) -> str:
        """Return the operator meant: one of `known`, the version of it too, or the name.

        >>> header = TilingHeader(name="Conv3DBackpropInput", workload=(), strategy=())
        >>> header.op(["Conv3D", "Conv3DBackpropInputV2"])
        'Conv3DBackpropInputV2'
        """
        if self.name in known:
            return self.name
        versions = [op for op in known if re.fullmatch(rf"{re.escape(self.name)}V\d+", op)]
        return versions[0] if len(versions) == 1 else self.name


def parse_header(text: str) -> TilingHeader:
    """Return the structs of a header.

    Raises:
        ValueError: it does not have one key struct and one tiling struct, or a member has a
            type or a default that is not known; the message says which.
    """
    plain = _COMMENT.sub(" ", text)
    keys, tilings = _KEY.findall(plain), _TILING.findall(plain)
    if len(keys) != 1 or len(tilings) != 1:
        raise ValueError(f"{len(keys)} key and {len(tilings)} tiling structs, expected 1 of both")
    name, body = tilings[0]
    if body.count("FIELD_DEF") != len(_FIELD.findall(body)):
        raise ValueError(f"a field of {name} is written in a way that is not known")
    return TilingHeader(
        name=_CLASS.sub("", name),
        workload=tuple(_row(*member) for member in _MEMBER.findall(keys[0])),
        strategy=tuple(_row(*field) for field in _FIELD.findall(body)),
    )


def _row(c_type: str, name: str, default: str = "") -> TilingRow:
    if c_type not in C_TYPES:
        raise ValueError(f"member {name} has the type {c_type}, expected one of {C_TYPES}")
    if not default:
        return name, c_type
    words = {"true": 1, "false": 0}
    return name, c_type, words[default] if default in words else int(default, 0)
