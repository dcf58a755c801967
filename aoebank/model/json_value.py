"""Types of a JSON value, and the number types that keep their spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = (
    "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
)
JsonObject: TypeAlias = Mapping[str, JsonValue]


class ExactFloat(float):
    """A number that remembers how it was written, such as `1e-4` or `1.50`.

    Python would write another spelling, and the keys of some banks are hashes over text.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> ExactFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __reduce__(self) -> tuple[type[ExactFloat], tuple[str]]:
        return ExactFloat, (self.text,)


class ExactInt(int):
    """A whole number that remembers how it was written: `-0`, which is 0 to every reader."""

    text: str

    def __new__(cls, text: str) -> ExactInt:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __reduce__(self) -> tuple[type[ExactInt], tuple[str]]:
        return ExactInt, (self.text,)
