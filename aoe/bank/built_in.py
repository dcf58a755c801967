"""The built-in bank: records that come with the package, for common CPUs; it is never written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aoe.errors import OptionError
from aoebank import Bank, Tier

VARIABLE = "AOE_BUILT_IN_BANK"
_OFF = frozenset({"off", "false", "0", "no"})


def packaged_root() -> Path:
    """Return the root of the bank that comes with the package."""
    return Path(__file__).parent / "built_in"


def built_in_bank(env: Mapping[str, str], cwd: Path) -> Bank | None:
    """Return the bank looked up after the custom one, None if there is to be none.

    Args:
        env: `AOE_BUILT_IN_BANK` names another root than that of the package, or is `off`.
        cwd: Directory a relative root is taken from.

    Raises:
        OptionError: the variable names no directory.
    """
    named = env.get(VARIABLE)
    if named and named.lower() in _OFF:
        return None
    root = cwd / named if named else packaged_root()
    if named and not root.is_dir():
        raise OptionError(
            VARIABLE,
            "not a directory",
            got=named,
            expected="the root of a bank, or off",
            hint=f"unset {VARIABLE} for the bank that comes with the package",
        )
    return Bank(root, tier=Tier.BUILT_IN)
