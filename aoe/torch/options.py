"""Options of `aoe.torch.optimize` and of the backend, checked: no part of the engine is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoe.errors import OptionError, unknown_name
from aoe.runs.configuration.options import SETTINGS, present_name, read_option
from aoe.runs.configuration.resolving import configure, precision_of, settings_of
from aoe.torch.process_options import with_process_options
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.precision.settings import KEEP_FLOAT32, PrecisionSettings
from aoe.tuner.registry import parse_job_types

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet

_TUNING = (
    *("job_type", "bank", "output", "tuning_time_limit", "trials", "search", "seed", "core_num"),
    *("precision_mode", "modify_mixlist", "accuracy", "calibration", "strict_fp32"),
    *("lookup_only", "cache_mode", "cache_dir"),
)
"""Options of `aoe.tune`, by their names here: those of the table, or their aliases there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """How a module is tuned."""

    tune: Mapping[str, Any] = field(default_factory=dict)
    """Options of `aoe.tune`, by their names there. The time limit counts exporting, too; without an
    `output`, neither the tuned model nor the reports are kept."""
    precision: PrecisionSettings = KEEP_FLOAT32
    """The options of precision, checked; without `calibration`, on the example inputs."""
    frozen: bool = False
    """Whether the module is promised not to change, so that no call looks for changes."""
    dynamic_shapes: Any = None
    """Open dimensions of the arguments, as `torch.export.export` takes them; each is a
    `torch.export.Dim`. The module is tuned for that range."""
    dynamic_max: int | None = None
    """Extent up to which the module is tuned along a dimension without an end, where larger ones
    are computed as well; None for four times that of the example."""


KNOWN = (*_TUNING, "frozen", "dynamic_shapes", "dynamic_max")


def make_options(given: Mapping[str, Any]) -> OptimizeOptions:
    """Return checked options.

    Raises:
        OptionError: a name or a value that cannot be meant.
    """
    for name in given:
        if name not in KNOWN:
            raise unknown_name("aoe.torch", "unknown option", name, KNOWN)
    options = with_process_options(given)
    tune = {present_name(name): options.pop(name) for name in _TUNING if name in options}
    most = options.get("dynamic_max")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise OptionError("dynamic_max", "no extent", got=most, expected="a positive integer")
    read_option("cache_mode", tune.get("op_compiler_cache_mode"))
    sets = tune.get("calibration")
    calibration = () if sets is None else _input_sets(Path(sets))
    precision = precision_of(tune, calibration)  # found wrong before anything is exported
    job_type = tune.get("job_type", 2)
    if parse_job_types(str(job_type)) != (JobType.OPAT,):
        raise OptionError(
            "job_type",
            "only operator tuning works on one module",
            got=job_type,
            expected="2 (or opat)",
            hint="for gradients: aoe.torch.tune_gradients",
        )
    return OptimizeOptions(tune=tune, precision=precision, **options)


def _input_sets(folder: Path) -> tuple[InputSet, ...]:
    from aoe.ort.inputs import read_input_sets

    return read_input_sets(folder, "calibration")


def engine_settings(file: Path, given: Mapping[str, Any], env: Mapping[str, str]) -> TuneSettings:
    """Return the engine's settings for options of `aoe.tune`, files and variables behind them."""
    resolved = {name: given[name] for name in given.keys() & SETTINGS.keys() - {"bank"}}
    return settings_of(file, given, configure(resolved, env=env, cwd=Path.cwd()))
