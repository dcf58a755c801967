"""The published schemas, applied: whether a record is built as its schema says.

What a schema says about structure, names and types of members, does not depend on values. So a
schema is asked once per shape, the tree of names and types, however many records have it.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from aoebank.formats.text.problem import Problem
from aoebank.model.json_value import JsonValue

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
# what the other keywords in our schemas say is about values: rules of a format check those
STRUCTURAL = frozenset({"minItems", "required", "type"})


@dataclass(kw_only=True)
class Structure:
    """Structure of a record as one published schema has it."""

    schema: str  # File below `schemas`
    # Where in it a record is, as names from the top; empty if a file is no more.
    record: tuple[str, ...] = ()
    depth: int  # How many levels of objects and lists the schema looks into
    # Members whose value the schema looks at, to choose what else it says.
    decisive: tuple[str, ...] = ()
    _known: dict[Hashable, bool] = field(default_factory=dict, init=False, repr=False)

    def holds(self, value: JsonValue) -> bool:
        """True if a value is built as the schema says; its values may still be wrong."""
        shape = shape_of(value, self.depth)
        if self.decisive and isinstance(value, dict):
            shape = (shape, *map(str, map(value.get, self.decisive)))
        found = self._known.get(shape)
        if found is None:
            found = next(self._errors(value), None) is None
            self._known[shape] = found
        return found

    def problems(self, value: JsonValue, rules: Iterable[Problem] = ()) -> Iterator[Problem]:
        """Yield why a value is not built as the schema says; nothing if it is.

        Args:
            value: A record.
            rules: The problems in words of the format, looked for only if there are some.
        """
        if self.holds(value):
            return
        described = tuple(rules)
        yield from described
        if not described:
            yield from map(_problem, self._errors(value))

    def _errors(self, value: JsonValue) -> Iterator[ValidationError]:
        errors = self._validator.iter_errors(value)
        return (error for error in errors if error.validator in STRUCTURAL)

    @cached_property
    def _validator(self) -> Draft202012Validator:
        from jsonschema import Draft202012Validator

        whole = json.loads((SCHEMAS / self.schema).read_bytes())
        part = whole
        for name in self.record:
            part = part[name]
        return Draft202012Validator(whole).evolve(schema=part)


def shape_of(value: JsonValue, depth: int) -> Hashable:
    """Return names and types of a value down to a depth; of a list, the shapes its items have.

    >>> shape_of({"a": [1, 2]}, 2) == shape_of({"a": [3]}, 2)
    True
    >>> shape_of({"a": [1, 2]}, 2) == shape_of({"a": [1, "2"]}, 2)
    False
    """
    kind: type = type(value)
    if depth and isinstance(value, dict):
        return tuple(value), _shapes(value.values(), depth - 1)
    if depth and isinstance(value, list):
        return frozenset(_shapes(value, depth - 1))
    return kind


def _shapes(values: Iterable[JsonValue], depth: int) -> tuple[Hashable, ...]:
    if not depth:
        return tuple(map(type, values))
    return tuple([shape_of(item, depth) for item in values])


def _problem(error: ValidationError) -> Problem:
    return Problem(
        code="AB205" if error.validator == "required" else "AB206",
        tokens=tuple(map(str, error.absolute_path)),
        message=f"record is not what its schema says: {error.message[:200]}",
    )
