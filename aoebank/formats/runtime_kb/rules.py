"""Rules for a line of the runtime bank, as its reader takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.runtime_kb.fields import (
    missing_fields,
    spell,
    unknown_fields,
    value_problems,
)
from aoebank.formats.runtime_kb.operator_schema import (
    FieldError,
    OperatorSchema,
    convert,
    operator_schemas,
)
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.json_lines import duplicate_identity
from aoebank.formats.text.problem import Problem, missing, not_a_record, unknown_members, wrong_type
from aoebank.formats.text.record import record_text
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.json_value import JsonValue

MEMBERS = ("id", "info_dict", "knowledge", "op", "version")
READER_WORKERS = 8  # bad lines end one worker each; without any the reader waits for ever
STRUCTURE_CODES = frozenset({"AB206", "AB209"})  # how a record can differ from its schema
STRUCTURE = Structure(schema="runtime_kb/1.json", depth=2, decisive=("op",))
HINT = "remove the line: each bad one ends a worker of the reader"
_MEND_ID = "aoebank validate --fix --fix-class key FILE; no reader needs it, they compute their own"
_LARGEST_ID = 2**32 - 1
_REJECTED = {
    "AB103",
    "AB107",
    "AB108",
    "AB112",
    "AB113",
    "AB204",
    "AB205",
    "AB206",
}  # a line with such a finding ends a worker


def is_plain(value: Mapping[str, JsonValue]) -> bool:
    """True if the five members are there and have their usual types."""
    get = value.get
    return (
        type(get("id")) is int
        and type(get("version")) is int
        and type(get("op")) is str
        and type(get("info_dict")) is dict
        and type(get("knowledge")) is dict
    )


def line_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why the reader rejects a line for its members or its workload."""
    yield from not_a_record(value, HINT)
    if isinstance(value, Mapping) and value:
        yield from _member_problems(value)


def _member_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    kinds: dict[str, tuple[type | tuple[type, ...], str]] = {
        "id": ((int, float), "a number"),
        "version": ((int, float), "a number"),
        "op": (str, "a string"),
        "info_dict": (Mapping, "an object"),
        "knowledge": (Mapping, "an object"),
    }
    for name, (kind, expected) in kinds.items():
        if name not in value:
            yield missing(name, hint=HINT)
        elif not isinstance(value[name], kind):
            yield wrong_type(value[name], (name,), expected)
    op, workload = value.get("op"), value.get("info_dict")
    schema = operator_schemas().get(op) if isinstance(op, str) else None
    if schema is not None and isinstance(workload, Mapping):
        yield from _workload_problems(schema, workload)


def _workload_problems(
    schema: OperatorSchema, workload: Mapping[str, JsonValue]
) -> Iterator[Problem]:
    for field in schema.workload.fields:
        if field.name not in workload:
            yield missing(field.name, ("info_dict",), HINT)
            continue
        try:
            convert(field, workload[field.name])
        except FieldError as error:
            yield wrong_type(workload[field.name], ("info_dict", field.name), error.expected)


def check_runtime_file(
    parsed: ParsedFile,
    *,
    cores: int | None,
    op_type: str | None,
    schemas: Mapping[str, OperatorSchema] | None = None,
) -> Iterator[Finding]:
    """Yield the findings about the records of a file and about it as a whole.

    Args:
        parsed: The file.
        cores: Core number in its name.
        op_type: Operator type in its name.
        schemas: Operators as a release reads them; None for the newest.
    """
    is_newest = schemas is None
    operators = operator_schemas() if schemas is None else schemas
    bad = {finding.location.line for finding in parsed.findings if finding.code in _REJECTED}
    unknown: set[str] = set()
    hashes: dict[str, int] = {}
    for number in range(len(parsed)):
        text = record_text(parsed, number)
        value = json_text.scan(text.text, 0)[0]
        assert isinstance(value, Mapping)
        problems = [
            *_record_problems(value, parsed.keys[number], cores, op_type, operators, unknown),
            *_duplicate_problems(parsed, number, value, hashes),
        ]
        if is_newest and not STRUCTURE.holds(value):
            told = [problem for problem in problems if problem.code in STRUCTURE_CODES]
            problems += () if told else STRUCTURE.problems(value)
        for problem in problems:
            finding = text.finding(problem)
            if problem.code in _REJECTED:
                bad.add(finding.location.line)
            yield finding
        yield from text.duplicates(value)
    yield from _too_many(parsed, bad)


def _too_many(parsed: ParsedFile, bad: set[int]) -> Iterator[Finding]:
    if len(bad) >= READER_WORKERS:
        yield make_finding(
            "AB114",
            Location(path=parsed.path),
            "every worker of the reader meets a bad line: it waits for ever, holding its lock",
            got=f"{len(bad)} bad lines",
            expected=f"less than {READER_WORKERS}",
            hint="remove the bad lines; a host with fewer CPUs has fewer workers",
        )


def _record_problems(
    value: Mapping[str, JsonValue],
    key: str,
    cores: int | None,
    op_type: str | None,
    operators: Mapping[str, OperatorSchema],
    unknown: set[str],
) -> Iterator[Problem]:
    op, workload, strategy = value["op"], value["info_dict"], value["knowledge"]
    assert isinstance(workload, Mapping)
    assert isinstance(strategy, Mapping)
    if op_type is not None and op != op_type:
        yield Problem(
            code="AB215",
            tokens=("op",),
            message="op of the record is not the op of the file",
            got=spell(op),
            expected=op_type,
            hint="move the record to the file of its operator",
        )
    yield from unknown_members(value, MEMBERS)
    schema = operators.get(str(op))
    if schema is None:
        if op not in unknown:
            unknown.add(str(op))
            yield Problem(
                code="AB212",
                tokens=("op",),
                message="operator without a known schema: hashes and fields are not checked",
                got=spell(op),
                expected=", ".join(operators),
            )
        return
    yield from _id_problems(value["id"], int(key[:8], 16))
    yield from value_problems(schema.workload, workload, "info_dict")
    yield from unknown_fields(schema.workload, workload, "info_dict")
    yield from _strategy_problems(schema, strategy, cores)


def _id_problems(stored: JsonValue, hash_: int) -> Iterator[Problem]:
    assert isinstance(stored, int | float)
    if stored == hash_:
        return
    if not 0 <= stored <= _LARGEST_ID:
        yield Problem(
            code="AB308",
            tokens=("id",),
            message="id does not fit into 32 bits",
            got=spell(stored),
            expected=str(hash_),
            hint=_MEND_ID,
        )
        return
    yield Problem(
        code="AB307",
        tokens=("id",),
        message="id is not the hash of the record",
        got=spell(stored),
        expected=str(hash_),
        hint=_MEND_ID,
    )


def _strategy_problems(
    schema: OperatorSchema, strategy: Mapping[str, JsonValue], cores: int | None
) -> Iterator[Problem]:
    if not schema.strategy.names.keys() <= strategy.keys():
        fields = schema.strategy.fields
        yield from missing_fields([field for field in fields if field.name not in strategy])
    yield from value_problems(schema.strategy, strategy, "knowledge")
    yield from unknown_fields(schema.strategy, strategy, "knowledge")
    used = strategy.get("usedCoreNum")
    if cores is not None and isinstance(used, int | float) and used > cores:
        yield Problem(
            code="AB406",
            tokens=("knowledge", "usedCoreNum"),
            message="strategy uses more cores than the file is for",
            got=str(used),
            expected=f"<= {cores}",
            hint="tune again with these cores",
        )


def _duplicate_problems(
    parsed: ParsedFile, number: int, value: Mapping[str, JsonValue], hashes: dict[str, int]
) -> Iterator[Problem]:
    key = parsed.keys[number]
    yield from duplicate_identity(
        parsed,
        number,
        ("info_dict",),
        "knowledge",
        "remove one: which of them the reader uses depends on its threads",
    )
    if parsed.find(key) != number or str(value["op"]) not in operator_schemas():
        return
    other = hashes.setdefault(key[:8], number)
    if other != number:
        line, _ = parsed.lines.position(parsed.starts[other])
        yield Problem(
            code="AB310",
            tokens=("info_dict",),
            message="another workload has the same 32-bit hash, and the reader keeps one",
            got=f"{int(key[:8], 16)} as in line {line}",
            hint="remove the one of less use",
        )
