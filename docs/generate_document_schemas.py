"""Write the schemas of the documents the commands write, `aoebank/schemas/documents/*.json`.

    python docs/generate_document_schemas.py [--check]

Other members than those of its shape are an error, so a document cannot grow without its schema.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import engine_document_shapes
from document_shapes import DOCUMENTS, ERROR, FILES, LINES, OTHERS, Each

FOLDER = Path(__file__).resolve().parents[1] / "aoebank" / "schemas" / "documents"
TYPES = {
    "text": "string",
    "count": "integer",
    "number": "number",
    "flag": "boolean",
    "any": "",
}


def schemas() -> Mapping[Path, str]:
    """Return the text of each schema by file."""
    documents = {**DOCUMENTS, **engine_document_shapes.DOCUMENTS}
    found = {name: _document(name, members) for name, members in documents.items()}
    lines = {**LINES, **engine_document_shapes.LINES}
    found |= {name: _line(name, members) for name, members in lines.items()}
    return {
        FOLDER / f"{name.replace('/', '-')}.json": json.dumps(schema, indent=2) + "\n"
        for name, schema in found.items()
    }


def _head(name: str) -> dict[str, object]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://aoebank.invalid/schemas/documents/{name.replace('/', '-')}.json",
        "title": _full(name),
    }


def _full(name: str) -> str:
    """Return the name of a document with the program that writes it."""
    return name if "." in name else f"aoebank.{name}"


def _document(name: str, members: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of an answer; an error may come with it, or in its place."""
    const = {"schema": {"const": _full(name)}}
    answer = _shape(members)
    answer["required"] = ["schema", *answer["required"]]
    answer["properties"] = {**const, **answer["properties"]}
    if name in FILES:
        return {**_head(name), **answer}
    answer["properties"]["error"] = {"$ref": "#/$defs/error"}
    only_error = {
        "type": "object",
        "required": ["schema", "error"],
        "properties": {**const, "error": {"$ref": "#/$defs/error"}},
        "additionalProperties": False,
    }
    return {**_head(name), "anyOf": [answer, only_error], "$defs": {"error": _shape(ERROR)}}


def _line(name: str, members: Mapping[str, object]) -> dict[str, object]:
    line = _shape(members)
    line["properties"]["schema"] = {"const": _full(name)}
    line["additionalProperties"] = True  # of newer programs
    return {**_head(name), **line}


def _shape(shape: object) -> dict:  # type: ignore[type-arg]
    match shape:
        case "texts?":
            return {"type": ["array", "null"], "items": {"type": "string"}}
        case str(name):
            kind = TYPES[name.removesuffix("?")]
            return {"type": [kind, "null"] if name.endswith("?") else kind} if kind else {}
        case Each(of):
            return {"type": "object", "additionalProperties": _shape(of)}
        case [of] if isinstance(shape, list):
            return {"type": "array", "items": _shape(of)}
        case (of, None):
            return {"anyOf": [_shape(of), {"type": "null"}]}
        case Mapping():
            named = {name: member for name, member in shape.items() if name != OTHERS}
            return {
                "type": "object",
                "required": [name for name in named if not name.endswith("?")],
                "properties": {
                    name.removesuffix("?"): _shape(member) for name, member in named.items()
                },
                "additionalProperties": _shape(shape[OTHERS]) if OTHERS in shape else False,
            }
    raise TypeError(shape)


def main() -> int:
    """Write the schemas, or with --check say which are out of date."""
    stale = {
        file: text
        for file, text in schemas().items()
        if not file.exists() or file.read_text() != text
    }
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(f"{file.name} is out of date: run python docs/{Path(__file__).name}")
        return int(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for file, text in stale.items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
