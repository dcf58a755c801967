"""Tell which bank each reader would use, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aoebank.errors import AoebankError
from aoebank.model.resolution import (
    Attempt,
    FoundFile,
    Hazard,
    Hit,
    Match,
    Reader,
    ReaderAnswer,
    ReaderOutcome,
    Trouble,
    UnionRule,
)
from aoebank.report.output import Report, Text, error_document, location_document, members, say
from aoebank.resolving.hazards import CONSEQUENCES
from aoebank.resolving.run import ResolveResult
from aoebank.storage.readers.environment import current_environment
from aoebank.storage.readers.toolkit import find_toolkit

_OUTCOMES = {
    ReaderOutcome.CUSTOM: ("custom", "green"),
    ReaderOutcome.BUILT_IN: ("built_in", "cyan"),
    ReaderOutcome.NOTHING: ("nothing", "yellow"),
    ReaderOutcome.STOPS: ("stops", "red"),
}


_UNIONS = {
    UnionRule.FIRST: "the first that has a record that fits answers",
    UnionRule.BEST: "the fastest record that fits answers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveReport(Report):
    """A paragraph per reader, then the records and the warnings."""

    result: ResolveResult
    explain: bool = False
    schema: str = "aoebank.resolve/1"

    @property
    def error(self) -> AoebankError | None:
        """The error that would end a reader's job."""
        return self.result.error

    @property
    def exit_code(self) -> int:
        """Return 0 when found, 1 when not, and the code of the error if there is one."""
        if self.result.error is not None:
            return self.result.error.exit_code
        return 0 if self.result.is_found else 1

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            **members(
                result,
                "soc_version=query.soc_version core_num=query.core_num "
                "op_type=query.op_type found=is_found",
            ),
            "readers": [_answer_document(answer) for answer in result.answers],
            "records": [_match_document(match) for match in result.matches],
            "warnings": [_hazard_document(hazard) for hazard in result.hazards],
        }

    def write(self, text: Text) -> None:
        for answer in self.result.answers:
            _write_answer(text, answer)
            if self.explain:
                for number, attempt in enumerate(answer.tried, start=1):
                    _write_attempt(text, number, attempt)
                for trouble in answer.troubles:
                    _write_trouble(text, trouble)
            for line in _places(answer, is_open=self.result.query.is_open):
                text.line(*line)
        for match in self.result.matches:
            _write_match(text, match)
        for hazard in self.result.hazards:
            text.line(("warning ", "yellow"), f"{hazard.code} {hazard.message}")
            if hazard.path is not None:
                text.line(f"    {hazard.path}")
            if hazard.hint:
                text.line(f"    hint: {hazard.hint}")


def _write_answer(text: Text, answer: ReaderAnswer) -> None:
    decided = f", {answer.variable} decides" if answer.variable else ""
    outcome = _OUTCOMES[answer.outcome]
    if answer.writes and answer.outcome is ReaderOutcome.CUSTOM:
        outcome = ("writes", "green")
    text.line(f"{answer.reader}: ", outcome, decided)
    if len(answer.roots) > 1:
        rule = _UNIONS[answer.union]
        text.line(f"  {len(answer.roots)} banks, {rule}; writes go to {answer.root}")


def _write_attempt(text: Text, number: int, attempt: Attempt) -> None:
    mark = ("used", "green") if attempt.taken else ("passed over", "dim")
    if attempt.failed:
        mark = ("cannot be used", "red")
    text.line(f"  {number}. {attempt.variable} ({attempt.tier}): ", mark, f", {attempt.reason}")
    if attempt.directory is not None:
        text.line(f"     {attempt.directory}")


def _write_trouble(text: Text, trouble: Trouble) -> None:
    code = f" ({trouble.cann_code})" if trouble.cann_code else ""
    text.line(f"  {trouble.error.headline}: {CONSEQUENCES[trouble.failure]}{code}")


def _places(answer: ReaderAnswer, *, is_open: bool) -> Iterator[tuple[str | tuple[str, str], ...]]:
    """Yield the lines with the files found, else the one where a file would be."""
    if answer.writes:
        for path in answer.expected:
            exists = any(file.path == path for file in answer.files)
            yield f"  {path}", "  (exists)" if exists else ""
        return
    if answer.files and not is_open:
        for file in answer.files:
            yield f"  {file.path}", f"  {_whose(file)}"
        return
    is_known = is_open or answer.outcome is ReaderOutcome.STOPS or answer.ignores_custom
    for path in answer.expected:
        yield f"  {path}", "" if is_known else ("  (no such file)", "yellow")


def _whose(file: FoundFile) -> str:
    return f"({file.tier})"


def _write_match(text: Text, match: Match) -> None:
    if match.used is None:
        text.line(f"{match.reader}: ", ("no record", "yellow"), " for this workload")
        return
    text.line(f"{match.reader}: ", ("uses", "green"), f" {_hit_line(match.used)}")
    for hit in match.shadowed:
        text.line("  ", ("hides", "dim"), f" {_hit_line(hit)}")


def _hit_line(hit: Hit) -> str:
    record = hit.record
    time = "no time stored" if record.cost_us is None else f"{record.cost_us:g} us"
    return f"{record.key} ({hit.file.tier}, {time})  {record.location or hit.file.path}"


def _answer_document(answer: ReaderAnswer) -> dict[str, object]:
    return {
        **members(answer, "reader outcome writes"),
        "root": str(answer.root) if answer.root else None,
        **(members(answer, "roots union") if len(answer.roots) > 1 else {}),
        **members(answer, "variable ignores_custom"),
        "expected": [str(path) for path in answer.expected],
        "files": [_file_document(file) for file in answer.files],
        "tried": [
            members(attempt, "variable tier taken failed path directory reason")
            for attempt in answer.tried
        ],
        "troubles": [
            {
                **members(trouble, "effect=failure tier cann_code?"),
                **error_document(trouble.error),
            }
            for trouble in answer.troubles
        ],
    }


def _file_document(file: FoundFile) -> dict[str, object]:
    return members(file, "path tier soc_version")


def _match_document(match: Match) -> dict[str, object]:
    return {
        "reader": str(match.reader),
        "used": _hit_document(match.used) if match.used else None,
        "shadowed": [_hit_document(hit) for hit in match.shadowed],
        "broken": [str(path) for path in match.broken],
    }


def _hit_document(hit: Hit) -> dict[str, object]:
    place = location_document(hit.record.location) if hit.record.location else {}
    return {
        **_file_document(hit.file),
        **place,
        **members(hit.record, "key cost_us"),
    }


def _hazard_document(hazard: Hazard) -> dict[str, object]:
    return members(hazard, "code message path readers hint")


_CANN = ("soc", "writer", "shape", "record", "op_bank_path", "mdl_bank_path", "opp_path")


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> ResolveReport:
    """Return the report on the places of banks."""
    readers = given["reader"]
    if not readers and not any(given[name] for name in _CANN) and not _has_toolkit():
        readers = [Reader.HOST]
    return ResolveReport(result=call(reader=readers), explain=given["explain"])


def _has_toolkit() -> bool:
    """Tell whether CANN's readers can be meant; if not, say so: nobody asked for less."""
    if find_toolkit(current_environment()):
        return True
    say("no CANN toolkit here: this is what aoe would use; --soc or --reader asks CANN's readers")
    return False
