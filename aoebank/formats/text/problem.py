"""A problem inside a record: a finding that does not know its line yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import RecordError
from aoebank.formats.lines import LineIndex
from aoebank.formats.text import json_text
from aoebank.model.finding import Finding, make_finding
from aoebank.model.json_value import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A finding that knows its JSON pointer but not yet its line."""

    code: str
    tokens: tuple[str, ...]
    message: str
    got: str | None = None
    expected: str | None = None
    hint: str = ""


def repeated(what: str, got: str | None = None) -> Problem:
    """Return the problem of a record whose key another one has, where readers use the last."""
    return Problem(
        code="AB301",
        tokens=(),
        message=f"the same {what} comes again further down",
        got=got,
        expected=f"each {what} once",
        hint="remove this one; readers use the last",
    )


def kind_of(value: object) -> str:
    """Return the JSON word for the type of a value."""
    words: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "a boolean"),
        (str, "a string"),
        ((int, float), "a number"),
        (Mapping, "an object"),
        (Sequence, "a list"),
    )
    return next((word for kind, word in words if isinstance(value, kind)), "null")


def wrong_type(value: JsonValue, place: tuple[str, ...], expected: str) -> Problem:
    """Return the problem of a member whose type no reader takes."""
    return Problem(
        code="AB206",
        tokens=place,
        message=f"member {place[-1]} has the wrong type",
        got=kind_of(value),
        expected=expected,
    )


def missing(name: str, place: tuple[str, ...] = (), hint: str = "") -> Problem:
    """Return the problem of a required member that is not there."""
    return Problem(
        code="AB205", tokens=place, message=f"member {name} is missing", expected=name, hint=hint
    )


def unknown_members(
    value: Iterable[str], known: Sequence[str], place: tuple[str, ...] = ()
) -> Iterator[Problem]:
    """Yield the problem of each member of the object at `place` that readers do not know."""
    for name in value:
        if name not in known:
            yield Problem(
                code="AB207",
                tokens=(*place, name),
                message="unknown member",
                got=json_text.dumps(name),
                expected=", ".join(known),
            )


def blank_line(hint: str = "remove it") -> Problem:
    """Return the problem of a line with nothing on it."""
    return Problem(code="AB112", tokens=(), message="blank line", hint=hint)


def not_a_record(value: JsonValue, hint: str = "remove it") -> Iterator[Problem]:
    """Yield why the value of a line cannot be a record at all."""
    if not isinstance(value, Mapping):
        yield Problem(
            code="AB204",
            tokens=(),
            message="line is not an object",
            got=kind_of(value),
            expected="an object",
            hint=hint,
        )
    elif not value:
        yield Problem(code="AB113", tokens=(), message="line holds no record", got="{}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordText:
    """The text of one record and where in its file it stands."""

    path: Path
    lines: LineIndex
    text: str
    start: int
    end: int
    value: int = 0  # Offset in `text` where the value of the record starts, behind its name if any
    prefix: tuple[str, ...] = ()  # JSON pointer tokens of the record itself

    def finding(self, problem: Problem) -> Finding:
        """Return a problem as a finding with line, column and pointer."""
        offset = 0
        if problem.tokens:
            offset = json_text.locate(self.text, problem.tokens, self.value)
        return self._finding_at(offset, problem)

    def error(self, problem: Problem, hint: str = "") -> RecordError:
        """Return a problem as what reading the record raises."""
        place = self.finding(problem).location
        return RecordError(
            problem.message,
            path=self.path,
            line=place.line,
            column=place.column,
            pointer=place.pointer,
            got=problem.got,
            expected=problem.expected,
            hint=hint,
        )

    def _finding_at(self, offset: int, problem: Problem) -> Finding:
        pointer = json_text.pointer((*self.prefix, *problem.tokens))
        place = self.lines.location(self.path, self.byte(offset), self.end, pointer)
        return make_finding(
            problem.code,
            place,
            problem.message,
            got=problem.got,
            expected=problem.expected,
            hint=problem.hint,
        )

    def byte(self, offset: int) -> int:
        """Return the byte in the file of a character of the text."""
        before = self.text[:offset]
        return self.start + (offset if before.isascii() else len(before.encode("utf-8")))

    def duplicates(self, value: JsonValue) -> list[Finding]:
        """Return a finding for each member name that its object already has.

        Args:
            value: The value of the record, as parsed.
        """
        if not json_text.may_hold_duplicates(self.text[self.value :], value):
            return []
        return [
            self._finding_at(
                offset,
                Problem(
                    code="AB109",
                    tokens=tokens,
                    message="member name appears twice in one object",
                    got=f"{tokens[-1]!a}",
                    hint="remove all but the last one, which readers use",
                ),
            )
            for tokens, offset in json_text.find_duplicates(self.text, self.value)
        ]
