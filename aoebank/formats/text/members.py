"""Set, add and remove members of one JSON object in a text; no other character moves.

What is added is spelled as its neighbours are: their separators, and their order if it is sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

from aoebank.formats.text.json_text import dumps, iter_members, scan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """Where a member is: from the start of its name to the end of its value."""

    name: str
    start: int
    value: int
    end: int


def set_member(text: str, place: int, name: str, value: str) -> str:
    """Return the text with a member set, added where there is none.

    Args:
        place: Offset of the object.
        value: JSON text; takes the place of each value of that name.
    """
    members = _members(text, place)
    same = [member for member in members if member.name == name]
    if not same:
        return _with_new(text, place, members, name, value)
    for member in reversed(same):
        text = text[: member.value] + value + text[member.end :]
    return text


def remove_member(text: str, place: int, name: str) -> str:
    """Return the text without the members of a name, each gone with one comma."""
    members = _members(text, place)
    for number in reversed(range(len(members))):
        if members[number].name != name:
            continue
        if number:
            start, end = members[number - 1].end, members[number].end
        elif len(members) > 1:
            start, end = members[0].start, members[1].start
        else:
            start, end = members[0].start, members[0].end
        text = text[:start] + text[end:]
        members = _members(text, place)
    return text


def _members(text: str, place: int) -> list[_Member]:
    return [
        _Member(name=name, start=start, value=value, end=scan(text, value)[1])
        for name, start, value in iter_members(text, place)
    ]


def _with_new(text: str, place: int, members: list[_Member], name: str, value: str) -> str:
    if not members:
        return f"{text[: place + 1]}{dumps(name)}: {value}{text[place + 1 :]}"
    first, last = members[0], members[-1]
    colon = text[last.start : last.value][len(_spelled_name(text, last)) :]
    member = f"{dumps(name)}{colon}{value}"
    before, gap = text[place + 1 : first.start], colon.partition(":")[2]
    comma = text[members[-2].end : last.start] if len(members) > 1 else f",{before or gap}"
    names = [member.name for member in members]
    number = sum(other < name for other in names) if names == sorted(names) else len(names)
    if number == 0:
        return text[: first.start] + member + comma + text[first.start :]
    end = members[number - 1].end
    return text[:end] + comma + member + text[end:]


def _spelled_name(text: str, member: _Member) -> str:
    return text[member.start : scan(text, member.start)[1]]
