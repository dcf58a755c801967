"""How often records are used, as a file says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError, BankPathError
from aoebank.formats.text import json_text

MAX_WEIGHT = 1e15


def load_weights(path: Path) -> dict[str, float]:
    """Read how often each key is used: one JSON object of key -> number, none negative.

    Raises:
        BankFormatError: it is something else.
        BankPathError: it cannot be read.
    """
    try:
        value = json_text.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise BankNotFoundError("no such file", path=path) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BankPathError(f"cannot be read: {reason}", path=path) from error
    except ValueError as error:  # no UTF-8, no JSON
        raise BankFormatError(f"weights are not JSON: {error}", path=path) from error
    if not isinstance(value, Mapping):
        raise BankFormatError("weights are not one JSON object", path=path)
    weights = {}
    for key, weight in value.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not (0 <= weight <= MAX_WEIGHT)
        ):
            raise BankFormatError(
                f"weight of {key!a} is not usable",
                path=path,
                got=json_text.dumps(weight)[:40],
                expected="a number from 0 to 1e15",
            )
        weights[key] = float(weight)
    return weights
