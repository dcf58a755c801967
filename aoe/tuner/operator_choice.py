"""The user's choice of operators to tune (AOE's `tune_ops_file`), by names, types, or both.

{"tune_ops_name": ["/layer1/Conv", "/head/*"], "tune_ops_type": ["MatMul"]}

An operator is chosen if a node it computes has one of the names or one of the types, so a fused
one is chosen by any of its parts. Source: AOE documentation, `--tune_ops_file`; wildcards are an
addition.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aoe.errors import OptionError
from aoe.tuner.precision.settings import onnx_name

OPTION = "--tune_ops_file"
NAMES, TYPES = "tune_ops_name", "tune_ops_type"
NOT_CHOSEN = "not among the operators to tune"
"""Why an operator is only looked up, in words."""
_FORM = f'{{"{NAMES}": ["/head/MatMul"], "{TYPES}": ["Softmax"]}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChoice:
    """The operators that are tuned; the others have what the bank has for them."""

    names: tuple[str, ...] = ()  # Node names, or patterns of them (`*`, `?`, `[...]`)
    types: tuple[str, ...] = ()  # Operator types, of ONNX or of CANN

    def takes(self, names: Collection[str], types: Collection[str]) -> bool:
        """True if nodes with these names and types are chosen.

        >>> OperatorChoice(names=("/head/*",), types=("MatMul",)).takes(["/fc"], ["MatMulV2"])
        True
        """
        of_types = {onnx_name(one) for one in types}
        return any(_names_one(entry, names) for entry in self.names) or any(
            onnx_name(entry) in of_types for entry in self.types
        )

    def strangers(self, names: Collection[str], types: Collection[str]) -> tuple[str, ...]:
        """Return the patterns that match no node of a model, each with the nearest names.

        Args:
            names: Of all its nodes.
            types: Of all its nodes.
        """
        of_types = {onnx_name(one) for one in types}
        lost = [(entry, names) for entry in self.names if not _names_one(entry, names)]
        lost += [(entry, of_types) for entry in self.types if onnx_name(entry) not in of_types]
        return tuple(f"{entry}{_near(entry, known)}" for entry, known in lost)


def read_operator_choice(file: Path) -> OperatorChoice:
    """Return the choice of operators in a file.

    Raises:
        OptionError: it cannot be read, says what cannot be meant, or chooses nothing.
    """
    where = f"{OPTION} {file}"
    try:
        value: Any = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise OptionError(where, f"cannot be read: {what}", expected=f"JSON as {_FORM}") from error
    if not isinstance(value, dict) or value.keys() - {NAMES, TYPES}:
        got = next(iter(value.keys() - {NAMES, TYPES})) if isinstance(value, dict) else value
        raise OptionError(where, "not a choice of operators", got=repr(got), expected=_FORM)
    found = operator_choice(where, value)
    if found is None:
        raise OptionError(
            where,
            "it names no operator, so none would be tuned",
            expected=_FORM,
            hint=f"leave {OPTION} out to tune all that promise something",
        )
    return found


def given_operators(file: Path | None) -> OperatorChoice | None:
    """Return the choice of operators in a file, None for all; see `read_operator_choice`."""
    return None if file is None else read_operator_choice(file)


def operator_choice(where: str, members: Mapping[str, Any]) -> OperatorChoice | None:
    """Return the choice the two lists among some members make, None if they are empty or missing.

    Raises:
        OptionError: one is not a list of names.
    """
    lists = {}
    for key in (NAMES, TYPES):
        found = members.get(key, [])
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            raise OptionError(f"{where}, {key}", "not a list of names", got=repr(found))
        lists[key] = tuple(found)
    if not any(lists.values()):
        return None
    return OperatorChoice(names=lists[NAMES], types=lists[TYPES])


def choice_to_json(choice: OperatorChoice) -> dict[str, list[str]]:
    """Return a choice as its file has it."""
    return {NAMES: list(choice.names), TYPES: list(choice.types)}


def _names_one(entry: str, names: Collection[str]) -> bool:
    return entry in names or any(fnmatchcase(name, entry) for name in names)


def _near(entry: str, known: Collection[str]) -> str:
    close = get_close_matches(entry, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
