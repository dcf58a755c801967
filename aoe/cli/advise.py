"""`aoe advise`: what loses time in a model, why, and which actions were shown to help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aoe.cli.command_options import OPTIONS
from aoe.cli.options import profile_settings
from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoebank import say

if TYPE_CHECKING:
    from aoe.entry.folder import FoundModel
    from aoe.profiling.run import ProfileSettings
    from aoebank import Report


def advise(
    model: Annotated[
        Path,
        Option(
            is_argument=True,
            help="A model file, an .om, or a directory of models.",
            metavar="MODEL|X.om|DIR",
        ),
    ],
    *,
    most: Annotated[
        int,
        Option(least=0, metavar="N", help="Most edits tried, those about most lost time first."),
    ] = 12,
    actions: Annotated[
        list[str] | None,
        Option(flags=("--action",), metavar="NAME", help="Try this action only; may be repeated."),
    ] = None,
    tune_ops_file: Annotated[
        Path | None,
        replace(
            OPTIONS["tune_ops_file"], help="Write the operators worth tuning, as AOE reads them."
        ),
    ] = None,
    options: Mapping[str, Any],
    runs: Annotated[int, Option(least=1, metavar="N", help="Profiled runs per thread count.")] = 10,
    dry_run: Annotated[bool, Option(help="Write no file, say which would be.")] = False,
    seed: int,
) -> Report:
    """Say what loses time in a model, why, and which actions help: each is tried first."""
    from aoe.tuner.precision.settings import parse_precision

    if model.suffix == ".py":
        raise OptionError(
            "MODEL",
            "a script is no model; where the time of its steps goes is planned",
            got=model,
            expected="a model file, an .om or a directory of models",
            hint=f"aoe plan --job_type=2 --script {model}",
        )
    how: dict[str, Any] = {
        "most": most,
        "actions": _known(actions or ()),
        "precision": parse_precision(options["precision_mode"]),
    }
    settings = profile_settings(
        model, {**options, "seed": seed}, runs=runs, counts=False, fusion=True
    )
    written = _Written(tune_ops=tune_ops_file, is_dry_run=dry_run)
    found = _models_in(settings, written) if model.is_dir() else ()
    if found and found[0].path != model:
        return _on_folder(settings, found, how, written)
    if found:
        settings = replace(settings, framework=found[0].framework)
    return _on_model(settings, how, written)


def _known(actions: Sequence[str]) -> Sequence[str]:
    """Return names of actions as they were given.

    Raises:
        OptionError: there is no action of that name.
    """
    from aoe.advice.actions import ACTION_NAMES

    for name in actions:
        if name not in ACTION_NAMES:
            expected = ", ".join(sorted(ACTION_NAMES))
            raise OptionError("--action", "no such action", got=name, expected=expected)
    return actions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """Files that were asked for."""

    tune_ops: Path | None
    is_dry_run: bool

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self.tune_ops is None else (self.tune_ops,)


def _models_in(settings: ProfileSettings, written: _Written) -> tuple[FoundModel, ...]:
    """Return the models of a directory.

    Raises:
        ModelNotFoundError: there is none.
        OptionError: an option is of one model.
    """
    from aoe.entry.folder import find_models
    from aoe.profiling.subject import OM_SUFFIX

    models = find_models(settings.model, where=str(settings.model), besides=(OM_SUFFIX,))
    if models[0].path == settings.model:
        return models
    for option, value in (("--weight", settings.weight), ("--tune_ops_file", written.tune_ops)):
        if value is not None:
            raise OptionError(
                option, "is of one model, not of a directory of them", got=value, expected="a file"
            )
    return models


def _on_model(settings: ProfileSettings, how: Mapping[str, Any], written: _Written) -> Report:
    from aoe.advice.run import advise_file
    from aoe.report.advice import AdviceReport
    from aoe.results.files import write_json
    from aoe.tuner.operator_choice import NAMES

    advice = advise_file(settings, on_event=say, **how)
    if written.tune_ops is not None and not written.is_dry_run:
        write_json(written.tune_ops, {NAMES: list(advice.worth_tuning)})
    return AdviceReport(advice=advice, written=written.files, is_dry_run=written.is_dry_run)


def _on_folder(
    settings: ProfileSettings,
    models: Sequence[FoundModel],
    how: Mapping[str, Any],
    written: _Written,
) -> Report:
    from aoe.advice.folder import FolderAdvice, advise_folder
    from aoe.report.advice import FolderAdviceReport

    advised = tuple(advise_folder(settings, models, on_event=say, **how))
    advice = FolderAdvice(folder=settings.model, models=advised)
    return FolderAdviceReport(advice=advice, written=written.files, is_dry_run=written.is_dry_run)
