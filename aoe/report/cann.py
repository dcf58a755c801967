"""Report on a job that was handed to the `aoe` or `atc` of CANN."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.errors import RunError
from aoebank import Report, members, plural

if TYPE_CHECKING:
    from aoe.bank.importing import WrittenBank
    from aoe.runs.cann import CannRun
    from aoebank import AoebankError, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class CannReport(Report):
    """The calls, and the banks that came of them."""

    run: CannRun
    schema: str = "aoe.cann/1"

    @property
    def error(self) -> AoebankError | None:
        """Set if a call failed."""
        if not self.run.exit_code:
            return None
        return RunError(
            str(self.run.program),
            f"CANN's {self.run.program.name} has failed, its own messages are above",
            got=f"exit code {self.run.exit_code}",
            expected="0",
            hint="see its logs in ~/ascend/log",
        )

    @property
    def exit_code(self) -> int:
        """0, or that of the error."""
        return self.error.exit_code if self.error is not None else 0

    def document(self) -> Mapping[str, object]:
        return {
            "program": str(self.run.program),
            "command_lines": [list(line) for line in self.run.command_lines],
            "program_exit_code": self.run.exit_code,
            "banks": [
                {
                    **members(bank, "file records is_new"),
                    "taken_to": str(bank.taken_to) if bank.taken_to else None,
                    "problem": bank.problem or None,
                }
                for bank in self.run.banks
            ],
        }

    def write(self, text: Text) -> None:
        for line in self.run.command_lines:
            text.line(f"handed over: {shlex.join([str(self.run.program), *line])}")
        for bank in self.run.banks:
            text.line(_bank_line(bank))
        if not self.run.banks and self.run.program.name != "atc":
            text.line("bank: no file was written")


def _bank_line(bank: WrittenBank) -> str:
    state = "new" if bank.is_new else "changed"
    line = f"bank: {bank.file} ({state}, {plural(bank.records, 'record')})"
    if bank.problem:
        return f"{line}, stays there: {bank.problem}"
    return f"{line}, taken to {bank.taken_to}" if bank.taken_to else line
