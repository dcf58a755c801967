"""`aoe` and `aoe-atc --soc_version=Ascend...`: the same options, for CANN's `aoe` and `atc`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from aoe.cli.elsewhere import OPTIONS
from aoe.cli.options import finish
from aoe.errors import OptionError
from aoe.settings import environment
from aoe.tuner.mode import JobType
from aoebank import say

_SHORT = {"-m": "--model", "-w": "--weight", "-j": "--job_type", "-f": "--framework"}
_SHARED = frozenset(
    {
        *_SHORT.values(),
        *("--model_path", "--output", "--input_shape", "--progress_bar", "--aicore_num"),
        *("--precision_mode", "--modify_mixlist", "--device", "--out_nodes", "--singleop"),
        *("--tune_ops_file", "--tune_optimization_level", "--virtual_type", "--reload"),
        *("--Fdeeper_opat", "--Fnonhomo_split", "--Fop_format", "--ip", "--port"),
        *("--dynamic_batch_size", "--dynamic_image_size", "--dynamic_dims"),
    }
)
"""Options of this engine that CANN's aoe has too, under the same names."""
_OWN_FLAGS = frozenset(
    {"--json", "--quiet", "-q", "--debug", "--strict_fp32", "--deterministic", "--anonymous"},
)
_NOT_OF_ATC = (_OWN_FLAGS - {"--deterministic"}) | {
    *("--reports", "--aoe_mode", "--accuracy", "--calibration", "--shapes_from", "--input"),
    *("--inputs", "--custom_ops_library"),
}
"""Options of `aoe compile` that `atc` does not have."""
_NO_JOB = frozenset({"--help", "-h", "--version", "--script"})
_SOC = "--soc_version"
_JOB = "--job_type"


def ascend_target(arguments: Sequence[str]) -> str | None:
    """Return the `--soc_version` of a command line if it names an Ascend processor."""
    if _NO_JOB & set(arguments):
        return None
    for name, value in _options(arguments):
        if name == _SOC and (value or "").lower().startswith("ascend"):
            return value
    return None


def hand_over(arguments: Sequence[str], soc_version: str) -> int:
    """Run CANN's `aoe` with the options it knows, and return the exit code.

    Raises:
        OptionError: the job is none of CANN's command.
        TargetError: there is no toolkit.
    """
    from aoe.report.cann import CannReport
    from aoe.runs.cann import find_program, run_cann

    env = environment()
    find_program(soc_version, env)
    options, jobs = _handed_over(arguments)
    as_json = "--json" in arguments
    run = run_cann(
        [[*options, f"{_JOB}={job.number}"] for job in jobs],
        soc_version,
        env=env,
        cwd=Path.cwd(),
        output=sys.stderr if as_json else None,
    )
    return finish(CannReport(run=run), as_json=as_json)


def hand_over_to_atc(arguments: Sequence[str], soc_version: str) -> int:
    """Run CANN's `atc` with the options of `aoe compile` it knows, and return the exit code.

    Raises:
        TargetError: there is no toolkit.
    """
    from aoe.report.cann import CannReport
    from aoe.runs.cann import find_program, run_cann

    env = environment()
    find_program(soc_version, env, "atc")
    options, as_json = [], "--json" in arguments
    for name, value in _options(arguments):
        if name not in _NOT_OF_ATC:
            options.append(name if value is None else f"{name}={value}")
        elif name != "--json":
            say(f"warning: {name} is of this engine and is not handed to CANN's atc")
    run = run_cann(
        [options],
        soc_version,
        env=env,
        cwd=Path.cwd(),
        output=sys.stderr if as_json else None,
        program="atc",
    )
    return finish(CannReport(run=run), as_json=as_json)


def _handed_over(arguments: Sequence[str]) -> tuple[list[str], list[JobType]]:
    """Return the options for CANN without the mode, and the modes, one call each."""
    options, jobs = [], [JobType.OPAT]
    for name, value in _options(arguments):
        if name == _JOB:
            jobs = _jobs(value or "")
        elif name in _SHARED or name in OPTIONS:
            options.append(name if value is None else f"{name}={value}")
        elif name not in ("--json", _SOC):
            say(f"warning: {name} is of this engine and is not handed to CANN's aoe")
    return options, jobs


def _jobs(text: str) -> list[JobType]:
    known = {
        **{str(job.number): job for job in (JobType.SGAT, JobType.OPAT)},
        **{str(job): job for job in (JobType.SGAT, JobType.OPAT)},
    }
    parts = [part.strip().lower() for part in text.split(",")]
    unknown = [part for part in parts if part not in known]
    if unknown:
        raise OptionError(
            _JOB,
            "no job of CANN's aoe",
            got=unknown[0],
            expected="1 (or sgat), 2 (or opat)",
            hint="gradients are tuned by AOE_MODE=4 in a training script on CANN",
        )
    return [known[part] for part in parts]


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each option with its value; a word that belongs to none is one without a value."""
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, has_value, value = word.partition("=")
        name = _SHORT.get(name, name)
        found = OPTIONS.get(name)
        is_flag = name in _OWN_FLAGS or (found is not None and found.is_flag)
        if not has_value and not is_flag and left and not left[0].startswith("-"):
            yield name, left.pop(0)
        else:
            yield name, value if has_value else None
