"""Tell which records were measured in another environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoebank.errors import AoebankError
from aoebank.report.closed import closed_document, closed_error, write_closed
from aoebank.report.output import Report, Text, members, plural
from aoebank.validation.stale import StaleRecord, StaleResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleReport(Report):
    """A table of records with the reasons."""

    result: StaleResult
    schema: str = "aoebank.stale/1"

    @property
    def error(self) -> AoebankError | None:
        """Return why records may be missing."""
        return closed_error(self.result.closed, self.result.root)

    @property
    def exit_code(self) -> int:
        """Return 1 if a record is stale or to be checked again, or that of the error."""
        return self.error.exit_code if self.error is not None else int(bool(self.result.found))

    def document(self) -> Mapping[str, object]:
        return {
            **members(self, "root=result.root records=result.looked_at stale=_stale"),
            "to_check": len(self.result.found) - self._stale,
            "uncompared": self.result.uncompared,
            "found": [_document(one) for one in self.result.found],
            "unreadable": closed_document(self.result.closed),
        }

    def write(self, text: Text) -> None:
        if self.result.found:
            text.columns(
                self.result.found,
                ("state", "-", lambda one: "stale" if one.drift.is_stale else "check"),
                ("op_type", "-", lambda one: one.op_type or "-"),
                ("key", "-", lambda one: one.key),
                ("why", "-", lambda one: str(one.drift)),
                ("file", "-", lambda one: str(one.path)),
            )
        write_closed(text, self.result.closed)
        if self.result.uncompared:
            text.line(
                f"kernel source of {plural(self.result.uncompared, 'record')} not compared: "
                "that takes the engine that makes the kernels"
            )
        to_check = len(self.result.found) - self._stale
        text.line(
            f"{plural(self.result.looked_at, 'record')}: {self._stale} stale, "
            f"{to_check} to be checked again"
        )

    @property
    def _stale(self) -> int:
        return sum(one.drift.is_stale for one in self.result.found)


def _document(one: StaleRecord) -> dict[str, object]:
    return {
        **members(one, "path key op_type soc_version measured"),
        "stale": one.drift.is_stale,
        **members(one.drift, "hard soft"),
    }
