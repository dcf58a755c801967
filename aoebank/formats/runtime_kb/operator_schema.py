"""Key struct and tiling fields of the operators of the runtime bank, as data files.

An operator is added by adding `schemas/runtime_kb/operators/<op>.json`.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from aoebank.formats.text.problem import kind_of
from aoebank.model.json_value import JsonValue

FOLDER = Path(__file__).resolve().parents[2] / "schemas" / "runtime_kb" / "operators"
ENUMS = FOLDER.parent / "enums.json"
_CODES = {
    "int8_t": "b",
    "uint8_t": "B",
    "int16_t": "h",
    "uint16_t": "H",
    "int32_t": "i",
    "uint32_t": "I",
    "int64_t": "q",
    "uint64_t": "Q",
    "float": "f",
    "double": "d",
    "bool": "?",
    "ge::DataType": "i",
    "ge::Format": "i",
}
C_TYPES = tuple(_CODES)
_ENUMS = ("ge::DataType", "ge::Format")
_LARGEST_FLOAT = 3.4028234663852886e38
_MOST_TYPES = 64  # combinations of JSON types remembered as good; real banks have two


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """One member of a C struct."""

    name: str
    c_type: str
    # What the reader's struct starts with; None if it is left uninitialised.
    default: int | None = None
    # Whether the operator takes it from a record; else it computes the value itself, takes it from
    # the attributes of the operator, or has no use for it.
    is_read: bool = True
    path: str = ""  # The only path of the operator on which the field counts; empty if on all
    value: str = ""  # What belongs there when it follows from other fields, as a formula
    reaches: str = ""  # What the operator makes of it when no known kernel uses that

    @property
    def code(self) -> str:
        """Return the letter of Python's `struct` module."""
        return _CODES[self.c_type]

    @property
    def is_reserved(self) -> bool:
        """True if the name says that nothing reads the field."""
        return self.name.lower().startswith(("reserved", "reserverd"))  # the header's spelling

    @property
    def has_fallback(self) -> bool:
        """True if the operator works as before when the field is missing."""
        return self.default is not None or self.is_reserved

    @property
    def is_required(self) -> bool:
        """True if a tiling without the field runs with whatever was in memory."""
        return self.is_read and not (self.path or self.reaches or self.has_fallback)


class FieldError(ValueError):
    """A value its reader would reject: the field, what is there, what should be."""

    def __init__(self, field: SchemaField, value: JsonValue) -> None:
        super().__init__(f"{field.name}: {kind_of(value)}")
        self.field = field
        self.got = kind_of(value)
        self.expected = "a boolean" if field.code == "?" else f"a number ({field.c_type})"


def takes_boolean(field: SchemaField) -> bool:
    """True if the reader takes `true` for this field: bool, and narrow numbers."""
    return field.code not in "qQd" and field.c_type not in _ENUMS


def range_of(field: SchemaField) -> tuple[float, float]:
    """Return the least and the greatest number the C type of a field holds; it is no bool."""
    if field.code in "fd":
        largest = _LARGEST_FLOAT if field.code == "f" else sys.float_info.max
        return -largest, largest
    bits = 8 * struct.calcsize(f"<{field.code}")
    low = -(1 << (bits - 1)) if field.code.islower() else 0
    return low, low + (1 << bits) - 1


def convert(field: SchemaField, value: JsonValue) -> int | float:
    """Return the number the reader's C++ stores for a JSON value, conversions included.

    Raises:
        FieldError: the reader throws, and the line is lost.

    Source: nlohmann::json get<T>: numbers are cast; a boolean is taken by integers of up
    to 32 bits and float only, a number never by bool.
    """
    is_bool, code = isinstance(value, bool), field.code
    if code == "?":
        if not isinstance(value, bool):
            raise FieldError(field, value)
        return value
    if not isinstance(value, int | float) or (is_bool and not takes_boolean(field)):
        raise FieldError(field, value)
    if code in "fd":
        return _to_float(value, code)
    return _wrap(value, code)


def _to_float(value: float, code: str) -> float:
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        number = math.inf if value > 0 else -math.inf
    if code == "f" and math.isfinite(number) and abs(number) > _LARGEST_FLOAT:
        return math.copysign(math.inf, number)
    return number


def _wrap(value: float, code: str) -> int:
    bits = 8 * struct.calcsize(f"<{code}")
    number = int(value) if isinstance(value, int) or math.isfinite(value) else 0
    number &= (1 << bits) - 1
    return number - (1 << bits) if code.islower() and number >> (bits - 1) else number


def is_exact(field: SchemaField, value: JsonValue) -> bool:
    """True if a number reaches the reader unchanged (a float as near as it can be)."""
    if isinstance(value, bool) or field.code == "?":
        return isinstance(value, bool) and field.code == "?"
    stored = convert(field, value)
    return math.isfinite(stored) if field.code in "fd" else stored == value


class StructFields:
    """The members of a C struct, and the packing of JSON values into it.

    There must be two at least, as in every struct there is.

    Attributes:
        fields: In the order of the struct.
        names: Their names.
        size: Bytes of the packed struct.
    """

    def __init__(self, fields: Sequence[SchemaField]) -> None:
        self.fields = tuple(fields)
        self.names = {field.name: field for field in fields}
        packer = struct.Struct("<" + "".join(field.code for field in fields))
        self.size = packer.size
        self._pack = packer.pack
        names = [field.name for field in fields]
        # of one name itemgetter gives the value itself
        self._get: Callable[[Mapping[str, JsonValue]], tuple[JsonValue, ...]] = (
            itemgetter(*names) if len(names) > 1 else lambda values: (values[names[0]],)
        )
        self._good_types: set[tuple[type, ...]] = set()

    def pack(self, values: Mapping[str, JsonValue]) -> bytes:
        """Return the bytes of the struct, values converted as the reader does.

        Raises:
            KeyError: a field is missing.
            FieldError: a value has a type the reader rejects.
        """
        ordered = self._get(values)
        packed = self._pack_exact(ordered)
        if packed is not None:
            return packed
        converted = [convert(*pair) for pair in zip(self.fields, ordered, strict=True)]
        if len(self._good_types) < _MOST_TYPES and all(map(_is_same, ordered, converted)):
            self._good_types.add(tuple(map(type, ordered)))
        return self._pack(*converted)

    def is_exact(self, values: Mapping[str, JsonValue]) -> bool:
        """True if all fields are there and reach the reader as they are; no is a maybe."""
        try:
            self.pack(values)
            ordered = self._get(values)
            if self._pack_exact(ordered) is None:
                return False
            return math.isfinite(sum(ordered))  # type: ignore[arg-type]  # all are numbers
        except (KeyError, FieldError):
            return False

    def exact_packer(self, values: Mapping[str, JsonValue]) -> Callable[..., bytes] | None:
        """Return a packer of values of these types, in the order of `names`.

        None if such values are converted. What it returns raises `struct.error` or
        `OverflowError` for a value outside the range of its field.
        """
        if any(type(value) not in (int, float, bool) for value in self._get(values)):
            return None
        return self._pack if self.is_exact(values) else None

    def _pack_exact(self, ordered: Sequence[JsonValue]) -> bytes | None:
        if tuple(map(type, ordered)) not in self._good_types:
            return None
        try:
            return self._pack(*ordered)
        except (struct.error, OverflowError):  # out of range: the reader wraps it around
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSchema:
    """The two structs of one operator: what is hashed, and what the tiling is read into."""

    op: str
    workload: StructFields
    strategy: StructFields


def _is_same(value: object, converted: object) -> bool:
    """True if `struct.pack` takes a value of this type as the reader does."""
    return type(value) is type(converted) or (type(value) is int and type(converted) is float)


@cache
def operator_schemas() -> Mapping[str, OperatorSchema]:
    """Return the known operators by their name."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        reader = document.get("reader", {})
        schema = OperatorSchema(
            op=document["op"],
            workload=StructFields([_field(*row) for row in document["info_dict"]]),
            strategy=StructFields([_read_by(reader, *row) for row in document["knowledge"]]),
        )
        found[schema.op] = schema
    return found


@cache
def enum_names() -> Mapping[str, Mapping[int, str]]:
    """Return the names of the numbers of each enum in a key struct, by its C type."""
    document = json.loads(ENUMS.read_text(encoding="utf-8"))
    return {
        c_type: {int(number): name for number, name in document[c_type].items()}
        for c_type in _ENUMS
    }


def _field(name: str, c_type: str, default: int | None = None) -> SchemaField:
    return SchemaField(name=name, c_type=c_type, default=default)


def _read_by(
    reader: Mapping[str, Any], name: str, c_type: str, default: int | None = None
) -> SchemaField:
    """Return a tiling field with what the file says about how the operator reads it."""
    return replace(
        _field(name, c_type, default),
        is_read=name not in reader.get("not_read", ()),
        path=reader.get("conditional", {}).get(name, ""),
        value=reader.get("values", {}).get(name, ""),
        reaches=reader.get("unused", {}).get(name, ""),
    )
