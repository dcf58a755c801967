"""Modes by job type: one line each."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from aoe.errors import OptionError
from aoe.tuning.mode import JobType, Mode

MODES = {
    JobType.SGAT: "aoe.tuning.sgat.run",
    JobType.OPAT: "aoe.tuning.opat.run",
    JobType.GDAT: "aoe.tuning.gdat.run",
}
"""Modules, imported when their mode is asked for: each needs other libraries."""
RANGE_MODES = {JobType.OPAT: "aoe.tuning.ranges.run"}
"""Those that tune a model for a range of shapes."""

_JOB_TYPES = {
    **{str(job.number): job for job in JobType},
    "3": JobType.GDAT,
    **{job.value: job for job in JobType},
    **{job.subject: job for job in JobType},
}


def get_mode(job: JobType, *, is_range: bool = False) -> Mode:
    """Return the mode of a job type that `parse_job_types` lets through.

    Args:
        job: The job type.
        is_range: True to tune for a range of shapes.

    Raises:
        OptionError: the job type does not do that.
    """
    if is_range and job not in RANGE_MODES:
        raise OptionError(
            "--input_shape",
            f"{job.words} is for fixed shapes",
            got="a range",
            hint="--job_type=2, or shapes one by one",
        )
    return cast(Mode, import_module(RANGE_MODES[job] if is_range else MODES[job]))


def parse_job_types(text: str, where: str = "--job_type") -> tuple[JobType, ...]:
    """Return the modes of a `--job_type` value: numbers, names or subjects, a comma list.

    Args:
        text: The value.
        where: What an error is about.

    Raises:
        OptionError: a part is unknown.
    """
    jobs = []
    for part in (piece.strip().lower() for piece in text.split(",")):
        job = _JOB_TYPES.get(part.removesuffix(" tuning"))
        if job is None:
            raise OptionError(
                where,
                "unknown job type",
                got=repr(part),
                expected=" or ".join(f"{known.number} (or {known})" for known in MODES),
            )
        if job not in jobs:
            jobs.append(job)
    return tuple(jobs)
