"""The one precedence: option > file > environment > default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aoe.errors import OptionError
from aoe.runs.configuration.files import SettingsFile, find_ini, read_config
from aoe.runs.configuration.option import Option
from aoe.runs.configuration.options import SETTINGS, TUNE_OPTIONS
from aoe.tuner.mode import JobType, TuneSettings

if TYPE_CHECKING:
    from aoe.gradients.training import TrainingProgram
    from aoe.ort.inputs import InputSet
    from aoe.tuner.precision.settings import PrecisionSettings

T = TypeVar("T")
_MEMBERS = {member.name for member in fields(TuneSettings)}
_CASES = {
    "input_shape": "texts",
    "dynamic_batch_size": "batch_size",
    "dynamic_image_size": "image_size",
    "dynamic_dims": "dims",
    "shapes_from": "log",
}
"""Options that say shapes, and what `given_cases` calls them; that module loads ONNX."""


class SettingSource(StrEnum):
    """Where a value came from."""

    OPTION = "option"
    FILE = "file"
    ENVIRONMENT = "environment"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSetting:
    """A setting and its value."""

    setting: Option
    """Its row."""
    value: object
    """What was said, parsed; the default where nothing was."""
    source: SettingSource = SettingSource.DEFAULT
    """Where."""
    place: str = ""
    """The option, the file and its key, or the variable; empty for the default."""
    error: OptionError | None = None
    """What is wrong with what was said, None if nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfiguration:
    """All settings of a run, by name."""

    settings: Mapping[str, ResolvedSetting]

    def check(self) -> RunConfiguration:
        """Return itself if every value can be meant.

        Raises:
            OptionError: one cannot.
        """
        for found in self.settings.values():
            if found.error is not None:
                raise found.error
        stage = self.settings["stage"]
        for name in ("job_type", "tuning_time_limit"):
            other = self.settings[name]
            if stage.place and other.place and _counts_as_much(other, stage):
                raise OptionError(
                    stage.place,
                    f"given together with {other.place}",
                    hint="a stage says what is tuned and for how long: --stage sgat:600",
                )
        return self

    @property
    def job_types(self) -> tuple[JobType, ...]:
        """What is tuned: the modes of the stages, if there are any."""
        stages = self.get("stage", tuple)
        return tuple(job for job, _ in stages) or self.get("job_type", tuple)

    def find(self, name: str, kind: type[T]) -> T | None:
        """Return the value of a setting, None where the program is to find one."""
        value = self.settings[name].value
        assert value is None or isinstance(value, kind)
        return value

    def get(self, name: str, kind: type[T]) -> T:
        """Return the value of a setting that has a default."""
        value = self.find(name, kind)
        assert value is not None
        return value


def _counts_as_much(one: ResolvedSetting, other: ResolvedSetting) -> bool:
    order = list(SettingSource)
    return order.index(one.source) <= order.index(other.source)


def configure(
    options: Mapping[str, object],
    *,
    env: Mapping[str, str],
    cwd: Path,
    config: Path | None = None,
) -> RunConfiguration:
    """Return every setting with its value, and where that came from.

    Args:
        options: What was given on the command line or in a call, by name of the setting.
        env: Environment variables; an empty one is one that is not set.
        cwd: Where relative paths start, and the first place `aoe.ini` is looked for.
        config: File of `--config`.

    Raises:
        OptionError: a file cannot be read. A value that cannot be meant is in its place, and
            raised by `RunConfiguration.check`.
    """
    files = [read_config(cwd / config)] if config is not None else []
    ini = find_ini(env, cwd)
    files += [ini] if ini is not None else []
    return RunConfiguration(
        settings={name: _resolved(row, options, files, env) for name, row in SETTINGS.items()}
    )


def configure_call(options: Mapping[str, object]) -> RunConfiguration:
    """Return the settings of a call that reads no file and no variable."""
    return RunConfiguration(
        settings={name: _resolved(row, options, (), {}) for name, row in SETTINGS.items()}
    )


def settings_of(
    model: Path | TrainingProgram,
    options: Mapping[str, Any],
    found: RunConfiguration,
    *,
    inputs: tuple[InputSet, ...] = (),
    calibration: tuple[InputSet, ...] = (),
) -> TuneSettings:
    """Return the settings of a run from its options.

    Args:
        model: What is tuned.
        options: Values by name in the table of options; those that are not there have their
            defaults. `input_shape` is a list of texts.
        found: Those of them that files and variables can say, too.
        inputs: Arrays the model is run on.
        calibration: Those its accuracy is checked on.

    Raises:
        OptionError: a value cannot be meant.
    """
    found.check()

    own: dict[str, Any] = {}
    for row in TUNE_OPTIONS.values():
        given = options.get(row.name, row.initial)
        if row.name in found.settings:
            own[row.member] = found.settings[row.name].value
        elif row.parse is None:
            own[row.member] = given
        elif given is not None:
            own[row.member] = row.parse(row.member, given)
    own = {name: own[name] for name in own.keys() & _MEMBERS}
    said = {known: options.get(name) for name, known in _CASES.items()}
    cases = {known: one for known, one in said.items() if one not in (None, (), [])}
    if cases:
        from aoe.runs.given_cases import given_cases

        own |= given_cases(**cases)
    else:
        own.pop("input_shape", None)  # an empty list
    own["precision"] = precision_of(options, calibration)
    stages, work_path = found.get("stage", tuple), found.settings["work_path"]
    if work_path.source is SettingSource.FILE:  # the variable is read where results are placed
        own["work_path"] = Path(str(work_path.value))
    if stages:
        own["tuning_time_limit_s"] = None
    if found.settings["device"].place:
        own["device_place"] = found.settings["device"].place
    return TuneSettings(
        **own | {"model": model, "inputs": inputs},
        job_types=found.job_types,
        stage_limits_s=tuple(limit_s for _, limit_s in stages),
    )


def precision_of(
    options: Mapping[str, Any], calibration: tuple[InputSet, ...] = ()
) -> PrecisionSettings:
    """Return the settings of precision that options say, by their names in the table.

    Raises:
        OptionError: one cannot be meant, or they contradict each other.
    """
    from aoe.tuner.precision.settings import parse_precision

    return parse_precision(
        options.get("precision_mode"),
        _path(options.get("modify_mixlist")),
        strict=options.get("strict_fp32", False),
        accuracy=options.get("accuracy"),
        calibration=calibration,
    )


def _path(given: Any) -> Path | None:
    return None if given is None else Path(given)


def _resolved(
    row: Option,
    options: Mapping[str, object],
    files: Sequence[SettingsFile],
    env: Mapping[str, str],
) -> ResolvedSetting:
    for source, place, said in _said(row, options, files, env):
        try:
            value, error = row.parse(place, said) if row.parse else said, None
        except OptionError as found:
            value, error = said, found
        return ResolvedSetting(setting=row, value=value, source=source, place=place, error=error)
    return ResolvedSetting(setting=row, value=row.initial)


def _said(
    row: Option,
    options: Mapping[str, object],
    files: Sequence[SettingsFile],
    env: Mapping[str, str],
) -> Iterator[tuple[SettingSource, str, object]]:
    """Yield the sources of a setting that have a value, the strongest first."""
    if options.get(row.name) is not None:
        yield SettingSource.OPTION, row.option or row.name, options[row.name]
    in_files = [
        (SettingSource.FILE, f"{file.path}: {file.keys[row.name]}", file.values[row.name])
        for file in files
        if row.name in file.values
    ]
    said = env.get(row.variable)
    in_env = [(SettingSource.ENVIRONMENT, row.variable, said)] if said else []
    yield from (*in_env, *in_files) if row.variable_first else (*in_files, *in_env)
