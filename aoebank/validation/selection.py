"""Selection of finding codes: `--select` and `--ignore`, by code or prefix of codes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from aoebank.errors import UsageError
from aoebank.model.codes import CODES
from aoebank.model.finding import Finding

_NO_MATCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Prefixes of codes to report and to leave out; the longest that fits decides.

    >>> selection = Selection(select=("AB106", "AB3"), ignore=("AB1",))
    >>> selection.holds("AB106"), selection.holds("AB105"), selection.holds("AB301")
    (True, False, True)
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def holds(self, code: str) -> bool:
        """True if findings of this code are reported; a tie leaves them out."""
        chosen = _longest(code, self.select) if self.select else 0
        return chosen > _longest(code, self.ignore)

    def keep(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return the findings to report, in their order."""
        if not (self.select or self.ignore):
            return list(findings)
        held = {code for code in CODES if self.holds(code)}
        return [finding for finding in findings if finding.code in held]


def parse_selection(select: Iterable[str], ignore: Iterable[str]) -> Selection:
    """Read lists of codes and prefixes, each text a code or several with commas.

    Raises:
        UsageError: no code starts like this.
    """
    return Selection(select=_prefixes(select), ignore=_prefixes(ignore))


def find_codes(text: str) -> tuple[str, ...]:
    """Return the codes that start with `text`, upper or lower case.

    Raises:
        UsageError: there is none; the hint names the nearest.

    >>> find_codes("ab10")[:2]
    ('AB101', 'AB102')
    """
    prefix = text.strip().upper()
    found = tuple(code for code in CODES if prefix and code.startswith(prefix))
    if not found:
        near = difflib.get_close_matches(prefix, CODES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`aoebank explain` lists them"
        raise UsageError(
            "unknown finding code",
            got=text or "nothing",
            expected="a code such as AB103",
            hint=hint,
        )
    return found


def _prefixes(texts: Iterable[str]) -> tuple[str, ...]:
    parts = [part for text in texts for part in text.split(",")]
    for part in parts:
        find_codes(part)
    return tuple(part.strip().upper() for part in parts)


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=_NO_MATCH)
