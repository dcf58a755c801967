"""Write what `schemas/runtime_kb/1.json` says about each operator, from the operator files.

    python docs/generate_schemas.py

Run it after adding or changing a file in `aoebank/schemas/runtime_kb/operators`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aoebank.formats.operator_schema import (
    OperatorSchema,
    SchemaField,
    StructFields,
    operator_schemas,
    takes_boolean,
)

TARGET = Path(__file__).resolve().parents[1] / "aoebank" / "schemas" / "runtime_kb" / "1.json"


def render() -> str:
    """Return the text of the schema with the rules of all operators."""
    document = json.loads(TARGET.read_text(encoding="utf-8"))
    document["allOf"] = [_rule(schema) for schema in operator_schemas().values()]
    rules = [json.dumps(rule) for rule in document.pop("allOf")]
    head = json.dumps(document, indent=2).removesuffix("\n}")
    return head + ',\n  "allOf": [\n    ' + ",\n    ".join(rules) + "\n  ]\n}\n"


def _rule(schema: OperatorSchema) -> Mapping[str, Any]:
    then = {
        "info_dict": {
            "required": [*schema.workload.names], "properties": _types(schema.workload),
        },
        "knowledge": {"properties": _types(schema.strategy)},
    }  # fmt: skip
    return {
        "if": {"properties": {"op": {"const": schema.op}}, "required": ["op"]},
        "then": {"properties": then},
    }


def _types(struct: StructFields) -> dict[str, Any]:
    return {name: {"type": _type(field)} for name, field in struct.names.items()}


def _type(field: SchemaField) -> str | list[str]:
    if field.code == "?":
        return "boolean"
    return ["number", "boolean"] if takes_boolean(field) else "number"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
