"""Kinds of tuning by job type: one line each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import cast

from aoe.errors import OptionError
from aoe.tuner.mode import JobType, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """Names of the modules of a kind of tuning, imported when they are asked for."""

    mode: str  # Tunes: a `Mode`
    # Tunes a model for a range of shapes, and plans that: a `Mode` and a `Planner`; empty if
    # nothing does.
    range_mode: str = ""
    planner: str = ""  # Tells what a run would do: a `Planner`; empty if nothing does
    program_planner: str = ""  # The same for a training program: a `ProgramPlanner`
    verifier: str = ""  # Reads records that can be measured again: a `Verifier`; empty if none can
    training_verifier: str = ""  # The same for records of training scripts
    # Knows its tasks in banks, results and tuned models: an `EarlierTasks`; empty if nothing of it
    # is looked up for a model.
    earlier: str = ""
    # Class of the `Report` on its `ModeResult`, with the module; empty for the table and the
    # figures every mode gives.
    report: str = ""


KINDS = {
    JobType.SGAT: TaskKind(
        mode="aoe.runs.subgraphs.run",
        planner="aoe.runs.subgraphs.planning",
        verifier="aoe.runs.subgraphs.verify",
        earlier="aoe.tasks.rewrites.earlier",
        report="aoe.report.subgraph_table.SubgraphTuningReport",
    ),
    JobType.OPAT: TaskKind(
        mode="aoe.runs.operators.run",
        range_mode="aoe.runs.ranges.run",
        planner="aoe.runs.operators.planning",
        verifier="aoe.runs.operators.verify",
        training_verifier="aoe.torch.modules.training.verify",
        earlier="aoe.tasks.operators.earlier",
        report="aoe.report.tuning.OperatorTuningReport",
    ),
    JobType.GDAT: TaskKind(
        mode="aoe.runs.gradients.run",
        program_planner="aoe.runs.gradients.planning",
        verifier="aoe.runs.gradients.verify",
        report="aoe.report.tuning.GradientTuningReport",
    ),
}


def get_mode(job: JobType, *, is_range: bool = False) -> Mode:
    """Return the mode of a job type that `parse_job_types` lets through.

    Args:
        job: The job type.
        is_range: True to tune for a range of shapes.

    Raises:
        OptionError: the job type does not do that.
    """
    kind = KINDS[job]
    if is_range and not kind.range_mode:
        raise OptionError(
            "--input_shape",
            f"{job.words} is for fixed shapes",
            got="a range",
            hint="--job_type=2, or shapes one by one",
        )
    return cast(Mode, import_module(kind.range_mode if is_range else kind.mode))


def parse_job_types(text: str, where: str = "--job_type") -> tuple[JobType, ...]:
    """Return the modes of a `--job_type` value: numbers, names or subjects, a comma list.

    Args:
        text: The value.
        where: What an error is about.

    Raises:
        OptionError: a part is unknown.
    """
    known = {name: job for job in KINDS for name in (str(job.number), str(job), job.subject)}
    known["3"] = JobType.GDAT
    jobs = []
    for part in (piece.strip().lower() for piece in text.split(",")):
        job = known.get(part.removesuffix(" tuning"))
        if job is None:
            raise OptionError(
                where,
                "unknown job type",
                got=repr(part),
                expected=" or ".join(f"{one.number} (or {one})" for one in KINDS),
            )
        if job not in jobs:
            jobs.append(job)
    return tuple(jobs)


def other_mode(text: str, where: str = "--job_type") -> str:
    """Return how to get the other mode where a lone number names one; empty for names and lists.

    AOE's pages contradict each other: 1 is subgraph tuning in its reference, and operator tuning
    in the tutorial and on the page of MindStudio.

    Args:
        text: A value `parse_job_types` takes.
        where: The option.
    """
    modes = (JobType.SGAT, JobType.OPAT)
    job = next((one for one in modes if text.strip() == str(one.number)), None)
    if job is None:
        return ""
    other = modes[1 - modes.index(job)]
    return (
        f" ({where}={job.number} as in AOE's reference; its tutorial swaps the numbers: "
        f"{where}={other} is {other.subject} tuning)"
    )
