"""The twin of a bank file: what readers open in its place, and only its tuner can write.

Whoever changes records of a bank file asks here first: a twin left as it is would go on saying
what the file no longer does. The format names the twin (`Format.companion`), as `x.bin` of the
cube bank `x.json`.
"""

from __future__ import annotations

import os
from pathlib import Path

from aoebank.errors import BankPathError
from aoebank.formats import registry
from aoebank.formats.protocol import Format

BY_TUNER_ONLY = "readers open this twin of the bank file, which only its tuner can write"
USE_TUNER = "change the bank with the tuner, or remove both files"


def binary_cache_of(bank: Path) -> Path | None:
    """Return the twin readers want beside a bank file, by the name of the file."""
    format_ = registry.find_format(bank)
    return format_.companion(bank) if format_ else None


def bank_of_binary_cache(name: str) -> str | None:
    """Return the bank file a path is the twin of, or None; whether they exist is not asked.

    >>> bank_of_binary_cache("Ascend910B2/cube/x.bin")
    'Ascend910B2/cube/x.json'
    """
    binary_cache, bank = Path(name), Path(name).with_suffix(".json")
    is_binary_cache = bank != binary_cache and any(
        known.companion(bank) == binary_cache for known in registry.FORMATS
    )
    return bank.as_posix() if is_binary_cache else None


def demand_no_binary_cache(
    bank: Path,
    format_: Format,
    *,
    problem: str = BY_TUNER_ONLY,
    hint: str = USE_TUNER,
    root: Path | None = None,
) -> None:
    """Raise if there is a twin of a bank file, which would no longer agree with it.

    Args:
        problem: What the caller cannot do.
        hint: What a person can do instead.
        root: Where a relative `bank` starts, when messages are not to name it.

    Raises:
        BankPathError: there is one.
    """
    binary_cache = format_.companion(bank)
    if binary_cache is None:
        return
    # one that was not fetched is a link to nowhere, and one all the same
    if os.path.lexists(root / binary_cache if root else binary_cache):
        raise BankPathError(format_.companion_problem or problem, path=binary_cache, hint=hint)
