"""Tell all about single records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields

from aoebank.diffing.fields import plain
from aoebank.formats.registry import get_format
from aoebank.formats.text.json_text import dumps
from aoebank.model.json_value import JsonValue
from aoebank.model.provenance import Provenance
from aoebank.model.record import Record
from aoebank.reading.show import SelectorMiss, ShownRecord, ShowResult
from aoebank.report.output import Report, Text, location_document, members


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowReport(Report):
    """Records with their history, and what was not found."""

    result: ShowResult
    schema: str = "aoebank.show/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if anything asked for is not there."""
        return 1 if self.result.misses else 0

    def document(self) -> Mapping[str, object]:
        return {
            "records": [_document(shown) for shown in self.result.records],
            "misses": [
                {"selector": miss.selector, "reason": miss.reason, "keys": list(miss.keys)}
                for miss in self.result.misses
            ],
        }

    def write(self, text: Text) -> None:
        for number, shown in enumerate(self.result.records):
            if number:
                text.line()
            _write(text, shown)
        for miss in self.result.misses:
            _write_miss(text, miss)


def _write_miss(text: Text, miss: SelectorMiss) -> None:
    text.line((f"{miss.selector}: ", "bold"), (miss.reason, "red"))
    for key in miss.keys:
        text.line(f"  {key}")


def _write(text: Text, shown: ShownRecord) -> None:
    record = shown.record
    place = str(record.location) if record.location else str(shown.file)
    text.line((record.key, "bold"), f"  {place}")
    cost = "not measured" if record.cost_us is None else f"{record.cost_us:g} us"
    facts = (
        ("soc_version", record.soc_version),
        ("op_type", record.op_type),
        ("time", cost),
        ("origin", record.origin),
        ("workload", dumps(record.workload)),
        ("in words", ", ".join(f"{name} {value}" for name, value in _names(record).items())),
        ("strategy", dumps(record.strategy)),
        ("not used", ", ".join(f"{name} ({why})" for name, why in _unread(record).items())),
        ("alternatives", str(len(record.alternatives) or "")),
    )
    for name, value in facts:
        if value:
            text.line((f"  {name + ':':<13}", "dim"), value)
    for entry in shown.provenance:
        write_provenance(text, entry)


def write_provenance(text: Text, entry: Provenance) -> None:
    """Write when and by what a record was made, in one line."""
    speedup = ""
    if entry.speedup is not None:
        speedup = f", {entry.speedup:.2f}x"
        if entry.speedup_low is not None and entry.speedup_high is not None:
            speedup += f" ({entry.speedup_low:.2f}x to {entry.speedup_high:.2f}x)"
    samples = f", {len(entry.tuned_us)} samples" if entry.tuned_us else ""
    model = f", model {entry.model['name']}" if "name" in entry.model else ""
    text.line(
        ("  provenance:  ", "dim"),
        f"{entry.time} {entry.event} by {entry.engine}",
        f"{speedup}{samples}{model}",
    )


def _document(shown: ShownRecord) -> dict[str, object]:
    record = shown.record
    return {
        **members(record, "key format soc_version op_type"),
        "cost_us": _plain(record.cost_us),
        "origin": record.origin,
        "workload": _plain(record.workload),
        "names": _names(record),
        "strategy": _plain(record.strategy),
        "unread": _unread(record),
        "extra": _plain(record.extra),
        "alternatives": [
            {
                "cost_us": _plain(alternative.cost_us),
                "origin": alternative.origin,
                "workload": _plain(alternative.workload),
                "strategy": _plain(alternative.strategy),
                "extra": _plain(alternative.extra),
            }
            for alternative in record.alternatives
        ],
        "location": location_document(record.location) if record.location else None,
        "provenance": [provenance_document(entry) for entry in shown.provenance],
    }


def provenance_document(entry: Provenance) -> dict[str, object]:
    """Return the members of an entry, its key left out."""
    members = {
        field.name: _plain(getattr(entry, field.name))
        for field in fields(entry)
        if field.name not in ("extra", "location", "key")
    }
    return {**members, "extra": _plain(entry.extra)}


def _names(record: Record) -> dict[str, str]:
    """Return the names of numbers in a workload, by member."""
    if not isinstance(record.workload, Mapping):
        return {}
    name_of = get_format(record.format).value_name
    names = {
        member: name_of(record.op_type, member, value) for member, value in record.workload.items()
    }
    return {member: name for member, name in names.items() if name}


def _unread(record: Record) -> dict[str, str]:
    """Return why no reader uses members of a strategy, by member."""
    if not isinstance(record.strategy, Mapping):
        return {}
    reason_of = get_format(record.format).unread_reason
    reasons = {member: reason_of(record.op_type, member) for member in record.strategy}
    return {member: reason for member, reason in reasons.items() if reason}


def _plain(value: JsonValue) -> object:
    return json.loads(json.dumps(plain(value)))
