"""CANN's lists of operators in mixed precision, `--modify_mixlist=FILE`.

{"black-list": {"to-add": ["MatMul"]}, "white-list": {"to-add": [...], "to-remove": [...]},
 "gray-list": {...}}: an operator of the white list may be computed in the lower precision, one of
the black list may not, one of the gray list follows the operator before it. What is removed from
the white or the black list is gray. All that have kernels of lower precision are white at first.
Source: CANN, ATC option `--modify_mixlist`; node names and wildcards are an addition.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aoe.errors import OptionError

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
    """Which operators may be computed in a lower precision.

    Attributes:
        listings: By operator type, node name, or pattern of node names (`*`, `?`, `[...]`).
    """

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
        value = json.loads(file.read_text(encoding="utf-8"))
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
