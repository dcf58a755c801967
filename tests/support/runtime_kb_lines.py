"""Lines of a runtime bank for tests: the first sample record, and edits of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aoebank import Finding, JsonObject, Record
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.runtime_kb.format import RuntimeKbFormat, runtime_key
from aoebank.formats.runtime_kb.operator_schema import operator_schemas
from support import sample_bank_files

FORMAT = RuntimeKbFormat()
NAME = sample_bank_files.RUNTIME_KB.name
EXAMPLE = sample_bank_files.RUNTIME_KB.read_bytes()
FIRST: dict[str, Any] = json.loads(EXAMPLE.splitlines()[0])


def parse(data: bytes | str, name: str = NAME) -> ParsedFile:
    return FORMAT.parse(data.encode() if isinstance(data, str) else data, Path(name))


def findings(data: bytes | str, name: str = NAME) -> list[Finding]:
    parsed = parse(data, name)
    return [*parsed.findings, *FORMAT.check(parsed)]


def codes(data: bytes | str, name: str = NAME) -> list[str]:
    return [finding.code for finding in findings(data, name)]


def line(**changes: Any) -> str:
    return json.dumps({**FIRST, **changes})


def with_info(**changes: Any) -> str:
    info = {**FIRST["info_dict"], **changes}
    key = runtime_key("MatMulV3", info)
    return line(info_dict=info, id=int(key[:8], 16))


def with_knowledge(**changes: Any) -> str:
    return line(knowledge={**FIRST["knowledge"], **changes})


def without(part: str, name: str) -> str:
    return line(**{part: {key: value for key, value in FIRST[part].items() if key != name}})


def whole_record(op: str) -> dict[str, Any]:
    """Return a record of an operator with every field of both structs."""
    schema = operator_schemas()[op]
    workload = {field.name: field.code == "?" or 0 for field in schema.workload.fields}
    strategy = {field.name: field.code == "?" or 1 for field in schema.strategy.fields}
    id_ = int(runtime_key(op, workload)[:8], 16)
    return {"id": id_, "info_dict": workload, "knowledge": strategy, "op": op, "version": 0}


def make_runtime_record(*, op_type: str, workload: JsonObject, strategy: JsonObject) -> Record:
    """Return a new record for the runtime bank, its id being the hash the reader computes."""
    key = runtime_key(op_type, workload)
    return Record(
        key=key,
        format="runtime_kb",
        op_type=op_type,
        workload=workload,
        strategy=strategy,
        extra={"id": int(key[:8], 16), "version": 0},
    )


def name_for(op: str) -> str:
    """Return the name of a bank file of an operator."""
    return f"Ascend950PR_9579_28_AiCore_{op}_runtime_kb.json"
