"""Key struct and tiling fields of the operators of the runtime bank, as data files.

An operator is added by adding `schemas/runtime_kb/operators/<op>.json`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path

from aoebank.formats.problem import kind_of
from aoebank.model.json_value import JsonValue

FOLDER = Path(__file__).resolve().parents[1] / "schemas" / "runtime_kb" / "operators"
_CODES = {
    "int8_t": "b", "uint8_t": "B", "int16_t": "h", "uint16_t": "H", "int32_t": "i",
    "uint32_t": "I", "int64_t": "q", "uint64_t": "Q", "float": "f", "double": "d", "bool": "?",
    "ge::DataType": "i", "ge::Format": "i",
}  # fmt: skip
_ENUMS = ("ge::DataType", "ge::Format")
_LARGEST_FLOAT = 3.4028234663852886e38
_MOST_TYPES = 64  # combinations of JSON types remembered as good; real banks have two


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """One member of a C struct.

    Attributes:
        default: What the reader's struct starts with; None if it is left uninitialised.
    """

    name: str
    c_type: str
    default: int | None = None

    @property
    def code(self) -> str:
        """Return the letter of Python's `struct` module."""
        return _CODES[self.c_type]

    @property
    def is_reserved(self) -> bool:
        """Return whether the name says that nothing reads the field."""
        return self.name.lower().startswith(("reserved", "reserverd"))  # the header's spelling


class FieldError(ValueError):
    """A value its reader would reject: the field, what is there, what should be."""

    def __init__(self, field: SchemaField, value: JsonValue) -> None:
        super().__init__(f"{field.name}: {kind_of(value)}")
        self.field = field
        self.got = kind_of(value)
        self.expected = "a boolean" if field.code == "?" else f"a number ({field.c_type})"


def takes_boolean(field: SchemaField) -> bool:
    """Return whether the reader takes `true` for this field: bool, and narrow numbers."""
    return field.code not in "qQd" and field.c_type not in _ENUMS


def convert(field: SchemaField, value: JsonValue) -> int | float:
    """Return what the reader's C++ stores for a JSON value, conversions included.

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
    """Return whether a number reaches the reader unchanged (a float as near as it can be)."""
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
        self._get: Callable[[Mapping[str, JsonValue]], tuple[JsonValue, ...]] = itemgetter(*names)
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
        """Return whether all fields are there and reach the reader as they are; no is a maybe."""
        try:
            self.pack(values)
            return self._pack_exact(self._get(values)) is not None
        except (KeyError, FieldError):
            return False

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
    """Return whether `struct.pack` takes a value of this type as the reader does."""
    return type(value) is type(converted) or (type(value) is int and type(converted) is float)


@cache
def operator_schemas() -> Mapping[str, OperatorSchema]:
    """Return the known operators by their name."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        workload, strategy = (
            StructFields([_field(*row) for row in document[part]])
            for part in ("info_dict", "knowledge")
        )
        schema = OperatorSchema(op=document["op"], workload=workload, strategy=strategy)
        found[schema.op] = schema
    return found


def _field(name: str, c_type: str, default: int | None = None) -> SchemaField:
    return SchemaField(name=name, c_type=c_type, default=default)
