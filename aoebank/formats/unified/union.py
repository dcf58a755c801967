"""Two records of one key of the unified bank as one, with the candidates of both."""

from __future__ import annotations

from dataclasses import dataclass

from aoebank.formats.text import json_text
from aoebank.formats.text.containers import value_place
from aoebank.formats.text.cost import cost_us
from aoebank.model.digest import canonical_text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One answer: its text, its value in one spelling, what it is sorted by."""

    text: str
    meaning: str
    cost_us: float | None


def unite(ours: bytes, theirs: bytes) -> bytes:
    """Return the member with the candidates of both, fastest first, those without time last.

    Each candidate keeps its bytes; one that both have comes once. The rest is ours.

    Args:
        ours: `"key": [candidate, ...]`, readable.
        theirs: Another one of this key.
    """
    head, between, tail, known = _split(ours.decode("utf-8"))
    meanings = {candidate.meaning for candidate in known}
    new = [
        candidate
        for candidate in _split(theirs.decode("utf-8"))[3]
        if candidate.meaning not in meanings
    ]
    if not new:
        return ours
    candidates = sorted([*known, *new], key=_order)
    return (head + between.join(candidate.text for candidate in candidates) + tail).encode("utf-8")


def _split(text: str) -> tuple[str, str, str, list[_Candidate]]:
    """Return the text before, between and behind the candidates, and the candidates."""
    places = [
        (start, json_text.scan(text, start)[1])
        for _, _, start in json_text.iter_members(text, value_place(text))
    ]
    between = text[places[0][1] : places[1][0]] if len(places) > 1 else ", "
    candidates = [_candidate(text[start:end]) for start, end in places]
    return text[: places[0][0]], between, text[places[-1][1] :], candidates


def _candidate(text: str) -> _Candidate:
    value = json_text.loads(text)
    time = value.get("cost_time") if isinstance(value, dict) else None
    return _Candidate(text=text, meaning=canonical_text(value), cost_us=cost_us(time))


def _order(candidate: _Candidate) -> tuple[bool, float, str]:
    return candidate.cost_us is None, candidate.cost_us or 0.0, candidate.text
