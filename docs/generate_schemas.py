"""Write what `schemas/runtime_kb/1.json` says about each operator, from the operator files.

    python docs/generate_schemas.py

Run it after adding or changing a file in `aoebank/schemas/runtime_kb/operators`.

A record with an error is invalid: a member missing (AB205), one of a wrong type (AB206), a
tiling field the operator reads missing (AB209), a number out of range (AB405). What is no
error is an annotation: `default` and `description` of a tiling field.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aoebank.formats.runtime_kb.operator_schema import (
    C_TYPES,
    OperatorSchema,
    SchemaField,
    StructFields,
    operator_schemas,
    range_of,
    takes_boolean,
)

TARGET = Path(__file__).resolve().parents[1] / "aoebank" / "schemas" / "runtime_kb" / "1.json"


def render() -> str:
    """Return the text of the schema with the rules of all operators."""
    document = json.loads(TARGET.read_text(encoding="utf-8"))
    for part in ("$defs", "allOf"):
        document.pop(part, None)
    types = ",\n    ".join(
        f"{json.dumps(c_type)}: {json.dumps(_type(c_type))}" for c_type in C_TYPES
    )
    rules = ",\n    ".join(json.dumps(_rule(schema)) for schema in operator_schemas().values())
    head = json.dumps(document, indent=2).removesuffix("\n}")
    return f'{head},\n  "$defs": {{\n    {types}\n  }},\n  "allOf": [\n    {rules}\n  ]\n}}\n'


def _type(c_type: str) -> Mapping[str, Any]:
    """Return which values reach the reader as a number of a C type, conversions included."""
    field = SchemaField(name="", c_type=c_type)
    if field.code == "?":
        return {"type": "boolean"}
    type_ = ["number", "boolean"] if takes_boolean(field) else "number"
    low, high = range_of(field)
    if field.code in "fd":
        return {"type": type_, "minimum": low, "maximum": high}
    # a fraction is cut, so what is less than 1 beyond the last number still fits
    return {"type": type_, "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1}


def _rule(schema: OperatorSchema) -> Mapping[str, Any]:
    required = [field.name for field in schema.strategy.fields if field.is_required]
    then = {
        "info_dict": {
            "required": [*schema.workload.names],
            "properties": _properties(schema.workload),
        },
        "knowledge": {"required": required, "properties": _properties(schema.strategy)},
    }
    return {
        "if": {"properties": {"op": {"const": schema.op}}, "required": ["op"]},
        "then": {"properties": then},
    }


def _properties(struct: StructFields) -> dict[str, Any]:
    return {field.name: _property(field) for field in struct.fields}


def _property(field: SchemaField) -> Mapping[str, Any]:
    document: dict[str, Any] = {"$ref": f"#/$defs/{field.c_type}"}
    if field.default is not None:
        document["default"] = field.default
    notes = [
        "Not taken from records." if not field.is_read else "",
        f"Counts on the {field.path} path only." if field.path else "",
        f"{field.value}." if field.value else "",
        f"No known kernel uses {field.reaches}, which is made of it." if field.reaches else "",
    ]
    if any(notes):
        document["description"] = " ".join(filter(None, notes))
    return document


if __name__ == "__main__":
    text = render()
    if sys.argv[1:] == ["--check"]:
        sys.exit(text != TARGET.read_text(encoding="utf-8"))
    TARGET.write_text(text, encoding="utf-8")
