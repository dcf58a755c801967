"""Prototxt: protobuf's text format read without a schema, so that every field knows its line.

Protobuf's tokenizer splits the text; what a field means is said where it is read, with its type and
default, as `caffe.proto` says it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf import text_format  # type: ignore[import-untyped]

from aoe.errors import ModelImportError

T = TypeVar("T")

_MOST_NESTED = 100  # protobuf's own limit
_MOST_WHOLE = 2**32 - 1
_LARGEST = 3.4028234e38  # of float32
_CLOSES = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A value of a field as it is written: a quoted text, or a word (number, enum, boolean)."""

    text: str
    quoted: bool
    line: int


class Fields:
    """The fields of one message, read by name; what was never asked for can be named.

    Attributes:
        place: Of the message, for errors.
        line: Where it begins, from 1.
    """

    def __init__(self, place: str, line: int) -> None:
        self.place = place
        self.line = line
        self._values: dict[str, list[Scalar | Fields]] = {}
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def put(self, name: str, value: Scalar | Fields) -> None:
        """Add a value at the end of a field."""
        self._values.setdefault(name, []).append(value)

    def one(self, name: str, read: Callable[[Scalar], T], default: T) -> T:
        """Return the value of a field that may be there once.

        Raises:
            ModelImportError: it is there twice, or `read` cannot make sense of it.
        """
        values = self.every(name, read)
        if len(values) > 1:
            raise self._error(name, "given more than once", got=f"{len(values)} times")
        return values[0] if values else default

    def every(self, name: str, read: Callable[[Scalar], T]) -> tuple[T, ...]:
        """Return the values of a repeated field.

        Raises:
            ModelImportError: `read` cannot make sense of one.
        """
        self._asked.add(name)
        return tuple(self._read(name, value, read) for value in self._values.get(name, ()))

    def messages(self, name: str) -> tuple[Fields, ...]:
        """Return the messages of a repeated field.

        Raises:
            ModelImportError: one is a plain value.
        """
        self._asked.add(name)
        found = self._values.get(name, ())
        for value in found:
            if isinstance(value, Scalar):
                raise self._error(name, "not a message", got=value.text, line=value.line)
        return tuple(value for value in found if isinstance(value, Fields))

    def message(self, name: str) -> Fields:
        """Return the message of a field that may be there once; an empty one if it is not.

        Raises:
            ModelImportError: it is there twice, or a plain value.
        """
        found = self.messages(name)
        if len(found) > 1:
            raise self._error(name, "given more than once", got=f"{len(found)} times")
        return found[0] if found else Fields(self.place, self.line)

    def left(self) -> Iterator[tuple[str, int]]:
        """Yield the fields nobody asked for, with their lines."""
        for name, values in self._values.items():
            if name not in self._asked:
                yield name, values[0].line

    def _read(self, name: str, value: Scalar | Fields, read: Callable[[Scalar], T]) -> T:
        if isinstance(value, Fields):
            raise self._error(name, "a message where a value belongs", line=value.line)
        try:
            return read(value)
        except ValueError as error:
            raise self._error(
                name, "not such a value", got=value.text, expected=error, line=value.line
            ) from error

    def _error(self, name: str, problem: str, *, line: int = 0, **more: Any) -> ModelImportError:
        last = self._values[name][-1].line
        return ModelImportError(f"{self.place}, line {line or last}", f"{name}: {problem}", **more)


def text(value: Scalar) -> str:
    """Return a quoted text."""
    if not value.quoted:
        raise ValueError("a text in quotes")
    return value.text


def whole(value: Scalar) -> int:
    """Return an integer from 0 to 2**32 - 1."""
    found = integer(value)
    if not 0 <= found <= _MOST_WHOLE:
        raise ValueError(f"an integer from 0 to {_MOST_WHOLE}")
    return found


def positive(value: Scalar) -> int:
    """Return an integer from 1 to 2**32 - 1."""
    if not whole(value):
        raise ValueError(f"an integer from 1 to {_MOST_WHOLE}")
    return whole(value)


def integer(value: Scalar) -> int:
    """Return an integer that fits into 64 bits; decimal, octal and hexadecimal as in C."""
    digits = value.text.lstrip("-")
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[:1] == "0" and digits != "0" else 10
    try:
        if value.quoted or len(digits) > 64:
            raise ValueError
        found = int(value.text, base)
    except ValueError:
        raise ValueError("an integer") from None
    if not -(2**63) <= found < 2**63:
        raise ValueError("an integer of 64 bits")
    return found


def number(value: Scalar) -> float:
    """Return a number that float32 can hold."""
    try:
        if value.quoted or "_" in value.text:
            raise ValueError
        found = float(value.text.rstrip("fF") if "f" in value.text[-1:].lower() else value.text)
    except ValueError:
        raise ValueError("a number") from None
    if not abs(found) <= _LARGEST:  # nor is NaN
        raise ValueError("a finite number of 32 bits")
    return found


def flag(value: Scalar) -> bool:
    """Return a boolean."""
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if value.quoted or value.text.lower() not in known:
        raise ValueError("true or false")
    return known[value.text.lower()]


def choice(*words: str) -> Callable[[Scalar], str]:
    """Return a reader of an enum whose words are numbered from 0; empty ones do not exist."""

    def read(value: Scalar) -> str:
        named = value.text
        if named.isdecimal() and len(named) < 4 and int(named) < len(words):
            named = words[int(named)]
        if value.quoted or not named or named not in words:
            raise ValueError(f"one of {', '.join(filter(None, words))}")
        return named

    return read


def parse_text(content: str, place: str) -> Fields:
    """Return the fields of a prototxt.

    Args:
        content: The whole text.
        place: What errors call it.

    Raises:
        ModelImportError: it is not protobuf's text format.
    """
    reading = _Reading(content.split("\n"), place)
    try:
        return reading.whole()
    except text_format.ParseError as error:
        line = error.GetLine() or reading.line
        said = str(error).partition(" : ")[2] or str(error)
        raise ModelImportError(
            f"{place}, line {line}", f"not a prototxt: {_without_the_line(said)[:200]}"
        ) from error


def _without_the_line(said: str) -> str:
    """Return the message of a parse error without the line of the text it begins with."""
    quote, separator, why = said.rpartition("': ")
    return why if separator and quote.startswith("'") else said


class _Reading:
    """One pass over the text; the line is that of the token the tokenizer stands at."""

    def __init__(self, lines: Sequence[str], place: str) -> None:
        self.line = 0
        self._place = place
        self._tokens = text_format.Tokenizer(self._counted(lines))

    def whole(self) -> Fields:
        fields = Fields(self._place, 1)
        while not self._tokens.AtEnd():
            self._field(fields, 0)
        return fields

    def _counted(self, lines: Sequence[str]) -> Iterator[str]:
        for self.line, line in enumerate(lines, start=1):
            yield line

    def _field(self, into: Fields, depth: int) -> None:
        tokens = self._tokens
        if depth > _MOST_NESTED:
            raise tokens.ParseError(f"messages in messages deeper than {_MOST_NESTED}")
        name = tokens.ConsumeIdentifier()
        has_colon = tokens.TryConsume(":")
        if tokens.TryConsume("["):
            while not tokens.TryConsume("]"):
                into.put(name, self._value(depth))
                if not tokens.LookingAt("]"):
                    tokens.Consume(",")
        elif has_colon or tokens.token in _CLOSES:
            into.put(name, self._value(depth))
        else:
            tokens.Consume(":")
        if not tokens.TryConsume(","):
            tokens.TryConsume(";")

    def _value(self, depth: int) -> Scalar | Fields:
        tokens, line = self._tokens, self.line
        if tokens.token in _CLOSES:
            closes = _CLOSES[tokens.token]
            tokens.Consume(tokens.token)
            message = Fields(self._place, line)
            while not tokens.TryConsume(closes):
                if tokens.AtEnd():
                    raise tokens.ParseError(f'"{closes}" is missing for line {line}')
                self._field(message, depth + 1)
            return message
        if tokens.token[:1] in ("'", '"'):
            return Scalar(text=tokens.ConsumeString(), quoted=True, line=line)
        sign = "-" if tokens.TryConsume("-") else ""
        word = tokens.token
        if not word or not (word[0].isalnum() or word[0] in "_.+-"):
            raise tokens.ParseError("a value is missing")
        tokens.NextToken()
        return Scalar(text=sign + word, quoted=False, line=line)
