"""What to change in which records, as a person asks for it, checked against what readers know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from aoebank.errors import UsageError
from aoebank.formats.release import NEWEST, Release
from aoebank.formats.strategy_field import StrategyField
from aoebank.formats.text import json_text
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

_CLOSE = 3
_WORKLOAD, _STRATEGY = "info_dict.", "knowledge."


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRequest:
    """One change of many records.

    Attributes:
        paths: Bank files and trees.
        op: The operator type.
        assign: New values by field of the strategy.
        unset: Fields that go.
        where: Only records with these values, by field of the strategy or the workload; a name
            may start with `knowledge.` or `info_dict.`, for one that both have.
        soc: Only files of these targets; patterns as in a shell.
        allow: Fields to set though the reader does not know them or not so, or to unset though it
            needs them.
        reader: Whose fields count; None: what fields in the files tell.
    """

    paths: tuple[Path, ...]
    op: str
    assign: Mapping[str, JsonValue] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    where: Mapping[str, JsonValue] = field(default_factory=dict)
    soc: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    reader: Release | None = None
    is_dry_run: bool = False


def parse_values(texts: Iterable[str], option: str) -> dict[str, JsonValue]:
    """Return values by field, of texts such as `stepM=2`.

    Raises:
        UsageError: a text is none, or a field comes twice.

    >>> parse_values(["stepM=2", "isC04Flag=false"], "--set")
    {'stepM': 2, 'isC04Flag': False}
    """
    values: dict[str, JsonValue] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError("no field and value", where=option, got=text, expected="FIELD=VALUE")
        if name in values:
            raise UsageError("field comes twice", where=option, got=name)
        try:
            values[name] = json_text.loads(value)
        except json_text.JsonTextError as error:
            raise UsageError(
                "value is no JSON",
                where=f"{option} {name}",
                got=value or "nothing",
                expected="a number, true, false, or a text in double quotes",
            ) from error
    return values


def demand_sense(request: EditRequest) -> None:
    """Raise `UsageError` for a request that says nothing, or two things."""
    if not request.op:
        raise UsageError("names no operator", where="--op")
    if not request.assign and not request.unset:
        raise UsageError("changes nothing", where="edit", hint="--set FIELD=VALUE or --unset FIELD")
    both = sorted(request.assign.keys() & {*request.unset})
    if both:
        raise UsageError("field is set and unset", where="--set, --unset", got=both[0])


def demand_known(
    request: EditRequest,
    fields: Mapping[str, StrategyField] | None,
    records: Collection[Record],
    reader: Release,
) -> None:
    """Raise `UsageError` for a field or a value the reader would not take.

    Args:
        fields: What it knows; None: nobody knows, and what records have counts.
        records: Those of the operator.
    """
    present = {name for record in records for name in _members(record.strategy)}
    known = present if fields is None else fields.keys()
    for name, value in request.assign.items():
        if name in request.allow:
            continue
        if name not in known:
            raise _unknown(f"--set {name}", name, known, records, reader if fields else None)
        if fields is not None and not fields[name].accepts(value):
            raise UsageError(
                f"value is none {_called(reader)} takes as it is",
                where=f"--set {name}",
                got=json_text.dumps(value),
                expected=fields[name].expected,
                hint=f"--allow {name} sets it all the same",
            )
    for name in request.unset:
        if name not in present and name not in known:
            raise _unknown(f"--unset {name}", name, present | {*known}, records, None)
        if fields and name in fields and fields[name].is_required and name not in request.allow:
            raise UsageError(
                f"{_called(reader)} needs this field: without it a kernel gets what was in memory",
                where=f"--unset {name}",
                hint=f"--allow {name} takes it out all the same",
            )


def _unknown(
    where: str,
    name: str,
    known: Collection[str],
    records: Collection[Record],
    reader: Release | None,
) -> UsageError:
    close = get_close_matches(name.strip(), sorted(known), n=_CLOSE)
    in_workload = any(name in _members(record.workload) for record in records)
    problem = "no field of the strategy" + (f" in {_called(reader)}" if reader else "")
    if in_workload:
        problem += ", but one of the workload, by which readers find the record"
    return UsageError(
        problem,
        where=where,
        got=json_text.dumps(name),
        expected=" or ".join(close) if close else None,
        hint=f"--allow {name} sets it all the same; --reader names another release"
        if reader and not in_workload
        else "",
    )


def holds(where: Mapping[str, JsonValue], record: Record) -> bool:
    """Return whether a record has these values; a name that two structs have is ambiguous.

    Raises:
        UsageError: a name is in strategy and workload, and does not say which.
    """
    return all(_has(record, name, value) for name, value in where.items())


def _has(record: Record, name: str, value: JsonValue) -> bool:
    workload, strategy = _members(record.workload), _members(record.strategy)
    if name.startswith(_WORKLOAD):
        found, name = workload, name.removeprefix(_WORKLOAD)
    elif name.startswith(_STRATEGY):
        found, name = strategy, name.removeprefix(_STRATEGY)
    elif name in workload and name in strategy:
        raise UsageError(
            "strategy and workload have this field",
            where=f"--where {name}",
            expected=f"{_STRATEGY}{name} or {_WORKLOAD}{name}",
        )
    else:
        found = strategy if name in strategy else workload
    return name in found and _is_same(found[name], value)


def _is_same(a: JsonValue, b: JsonValue) -> bool:
    """Return whether two values are equal, numbers by value: 1 is 1.0, and neither is true."""
    numbers = (int, float)
    if isinstance(a, numbers) and isinstance(b, numbers):
        return isinstance(a, bool) == isinstance(b, bool) and a == b
    return canonical_text(a) == canonical_text(b)


def _called(reader: Release) -> str:
    return "the newest release" if reader is NEWEST else reader.name


def _members(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}
