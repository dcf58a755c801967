"""Options and environment variables of a run, checked once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aoe.errors import OptionError, OutputError


class JobType(StrEnum):
    """What is tuned. Source: DESIGN D10, AOE's `--job_type`."""

    SGAT = "sgat"
    OPAT = "opat"
    GDAT = "gdat"


JOB_TYPE_WORDS = {
    JobType.SGAT: "subgraph tuning (SGAT)",
    JobType.OPAT: "operator tuning (OPAT)",
    JobType.GDAT: "gradient tuning (GDAT)",
}
_JOB_TYPES = {
    "1": JobType.SGAT,
    "2": JobType.OPAT,
    "3": JobType.GDAT,
    "4": JobType.GDAT,
    **{job.value: job for job in JobType},
}
_IMPLEMENTED = frozenset({JobType.OPAT, JobType.GDAT})


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """One tuning run.

    Attributes:
        model: Model file, or a directory of several graphs.
        framework: AOE's framework number; None for a directory, which says itself what it is.
        weight: Second file, for frameworks that keep the weights apart.
        job_types: Modes, in order.
        input_shape: Text of `--input_shape`, or None.
        output: Directory or `.om` file for the results; None for the workspace.
        soc_version: Requested target, or None for this machine.
        core_num: Threads, or None for every usable core.
        repeat_tune: True to tune what the bank already has (`REPEAT_TUNE`).
        trials: Most candidates measured for one workload.
        search: Name of the search algorithm.
        seed: Of inputs and of the search.
        tuning_time_limit_s: Searching ends after so many seconds; None for no limit.
    """

    model: Path
    framework: int | None = 5
    weight: Path | None = None
    job_types: tuple[JobType, ...] = (JobType.OPAT,)
    input_shape: str | None = None
    output: Path | None = None
    soc_version: str | None = None
    core_num: int | None = None
    repeat_tune: bool = False
    trials: int = 24
    search: str = "bayesian"
    seed: int = 0
    tuning_time_limit_s: float | None = None


def environment() -> Mapping[str, str]:
    """Return a copy of the process's environment variables."""
    return dict(os.environ)


def parse_job_types(text: str) -> tuple[JobType, ...]:
    """Return the modes of a `--job_type` value: numbers or names, a comma list.

    Raises:
        OptionError: a part is unknown, or names a mode this version does not have.
    """
    jobs = []
    for part in (piece.strip().lower() for piece in text.split(",")):
        job = _JOB_TYPES.get(part)
        if job is None:
            raise OptionError(
                "--job_type",
                "unknown job type",
                got=repr(part),
                expected="2 (or opat) or 4 (or gdat)",
            )
        if job not in _IMPLEMENTED:
            raise OptionError(
                "--job_type",
                f"{JOB_TYPE_WORDS[job]} is not in this version",
                got=part,
                expected="2, operator tuning (OPAT), or 4, gradient tuning (GDAT)",
            )
        if job not in jobs:
            jobs.append(job)
    return tuple(jobs)


def is_gradient_job(text: str) -> bool:
    """Return whether a `--job_type` value names gradient tuning, alone or among others."""
    parts = (piece.strip().lower() for piece in text.split(","))
    return any(_JOB_TYPES.get(part) is JobType.GDAT for part in parts)


def parse_switch(name: str, value: str | None, *, default: bool) -> bool:
    """Return the value of an on/off option or of a True/False variable.

    Raises:
        OptionError: the text is neither.
    """
    if value is None or value == "":
        return default
    words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
    if value.lower() not in words:
        raise OptionError(name, "not a switch", got=repr(value), expected="True or False")
    return words[value.lower()]


def repeat_tune(env: Mapping[str, str]) -> bool:
    """Return `REPEAT_TUNE`: True to tune workloads which the bank already has."""
    return parse_switch("REPEAT_TUNE", env.get("REPEAT_TUNE"), default=False)


def work_path(env: Mapping[str, str], cwd: Path) -> Path:
    """Return where results go without `--output`: `$ASCEND_WORK_PATH/aoe_data`, else `cwd`.

    Raises:
        OutputError: the variable names something that is no directory or cannot be created.
    """
    named = env.get("ASCEND_WORK_PATH")
    if not named:
        return cwd
    path = cwd / named / "aoe_data"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            "ASCEND_WORK_PATH",
            f"cannot be used: {error}",
            got=named,
            hint="give a directory you may write to, or unset it",
        ) from error
    return path


def cache_path(env: Mapping[str, str]) -> Path | None:
    """Return where unpacked `.om` files may be kept, None if there is no home."""
    if env.get("XDG_CACHE_HOME"):
        return Path(env["XDG_CACHE_HOME"]) / "aoe"
    return Path(env["HOME"]) / ".cache" / "aoe" if env.get("HOME") else None
