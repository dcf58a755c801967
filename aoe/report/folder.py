"""Report on tuning a directory of models: each model's own report, and a table of all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoe.report.tuning import report_of
from aoe.report.whole_model import is_timed, whole_model_figure
from aoebank import Report

if TYPE_CHECKING:
    from pathlib import Path

    from aoe.runs.folder import ModelOfFolder
    from aoe.runs.operators.result import OpatResult
    from aoebank import AoebankError, Text

_COLUMNS = ("model", "before", "after", "speed-up", "added", "from bank", "result")


class ManyModelsReport(Report):
    """A report on the models of a directory, of which some may have failed."""

    __slots__ = ()

    @property
    @abstractmethod
    def errors(self) -> Sequence[AoebankError | None]:
        """The error of each model, None for the others."""

    @property
    def error(self) -> AoebankError | None:
        """The first one, if all models failed."""
        return self.errors[0] if all(self.errors) else None

    @property
    def exit_code(self) -> int:
        """0 if no model failed, 1 if some did, that of the error if all did."""
        return self.error.exit_code if self.error is not None else int(any(self.errors))


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReport(ManyModelsReport):
    """Result of every model of a directory."""

    folder: Path  # The directory
    models: tuple[ModelOfFolder, ...]  # In the order they were tuned
    schema: str = "aoe.folder/1"

    @property
    def about(self) -> str:
        """The folder of models."""
        return str(self.folder)

    @property
    def errors(self) -> Sequence[AoebankError | None]:
        """The error of each model that could not be tuned."""
        return [model.error for model in self.models]

    @property
    def error(self) -> AoebankError | None:
        """The first one, if all models failed; else why the bank took no more."""
        results = (model.result for model in self.models)
        full = (result.bank_failure for result in results if result is not None)
        return super(FolderReport, self).error or next(filter(None, full), None)

    def document(self) -> Mapping[str, object]:
        return {
            "folder": str(self.folder),
            "models": [_model_to_json(model) for model in self.models],
        }

    def write(self, text: Text) -> None:
        for model in self.models:
            if model.result is not None:
                text.line((f"{model.path.name} ({model.report})", "bold"))
                for mode in model.result.modes:
                    report_of(mode).write(text)
                text.line("")
        text.table(_COLUMNS, map(_row, self.models), "nrrrrr-")
        for model in self.models:
            if model.error is not None:
                text.line(f"{model.path.name} is not tuned: {model.error}")
                if model.error.hint:
                    text.line(f"hint: {model.error.hint}")
        tuned = sum(model.error is None for model in self.models)
        text.line(f"{tuned} of {len(self.models)} models tuned")
        if tuned:  # else an error follows
            text.line("Aoe process finished")


def _model_to_json(model: ModelOfFolder) -> Mapping[str, object]:
    document: dict[str, object] = {"model": str(model.path), "report": model.report}
    if model.error is not None:
        error = {"code": model.error.code, "message": str(model.error)}
        if model.error.hint:
            error["hint"] = model.error.hint
        return {**document, "error": error}
    assert model.result is not None
    modes = {mode.result_file.name: report_of(mode).document() for mode in model.result.modes}
    return {**document, "speedup": model.result.speedup, "modes": modes}


def _row(model: ModelOfFolder) -> Sequence[str]:
    if model.result is None:
        return (model.path.name, *["-"] * (len(_COLUMNS) - 2), "failed")
    found, has_figures = _operator_result(model), is_timed(model.result.modes)
    if found is None:
        speedup = f"{model.result.speedup:.3f}x" if has_figures else "-"
        figures = ["-", "-", speedup, "-", "-"]
    else:
        counts = [tuned.outcome for tuned in found.operators]
        figures = [
            whole_model_figure(found),
            whole_model_figure(found, found.speedup),
            f"{found.speedup:.3f}x" if has_figures else "-",
            str(sum(outcome.value == "add" for outcome in counts)),
            str(sum(outcome.value in ("reserved", "update") for outcome in counts)),
        ]
    words = "tuned" if model.result.speedup != 1 else "unchanged"
    return (model.path.name, *figures, words if has_figures else "from the bank")


def _operator_result(model: ModelOfFolder) -> OpatResult | None:
    from aoe.runs.operators.result import OpatResult

    assert model.result is not None
    found = [mode for mode in model.result.modes if isinstance(mode, OpatResult)]
    return found[-1] if found else None
