"""A job for an Ascend processor: handed to the `aoe` or `atc` of CANN; banks are taken in."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from aoe.bank.importing import WrittenBank, look_at_banks, take_in
from aoe.bank.operators import bank_root
from aoe.device.registry import resolve_target
from aoe.errors import RunError, TargetError
from aoebank import find_cann_program


@dataclass(frozen=True, slots=True, kw_only=True)
class CannRun:
    """Result of a job that was handed over."""

    program: Path  # CANN's `aoe` or `atc`
    command_lines: tuple[tuple[str, ...], ...]  # Options of each call, one for each mode
    exit_code: int  # Of the last call; those behind one that failed were not made
    banks: tuple[WrittenBank, ...]  # Bank files it has written


def find_program(soc_version: str, env: Mapping[str, str], name: str = "aoe") -> Path:
    """Return CANN's `aoe` or `atc`.

    Raises:
        TargetError: there is none; the message says where was looked, and which target is here.
    """
    search = find_cann_program(env, name)
    if search.program is None:
        _, host = resolve_target(None, None)
        raise TargetError(
            "--soc_version",
            f"a model for an Ascend processor needs the {name} of a CANN toolkit, and none was "
            f"found: {'; '.join(search.tried)}",
            got=soc_version,
            hint=f"--soc_version=host is for this CPU ({host.soc_version}); for {soc_version} "
            "install CANN and source its set_env.sh; Ascend banks can be managed with aoebank "
            "alone",
        )
    return search.program


def run_cann(
    command_lines: Sequence[Sequence[str]],
    soc_version: str,
    *,
    env: Mapping[str, str],
    cwd: Path,
    output: IO[str] | None = None,
    program: str = "aoe",
) -> CannRun:
    """Call a program of CANN for each command line, and take in what it wrote.

    Args:
        command_lines: Options, without the program; a call that fails is the last one.
        soc_version: What is tuned for.
        env: Environment variables, passed on as they are.
        cwd: Directory it runs in.
        output: Where its standard output goes; None for that of this process.
        program: `aoe` or `atc`.

    Raises:
        TargetError: there is no such program.
        RunError: it cannot be started.
        AoebankError: the bank cannot be used.
    """
    found = find_program(soc_version, env, program)
    root = bank_root(env, cwd)
    before = look_at_banks(soc_version)
    done: list[tuple[str, ...]] = []
    exit_code = 0
    for options in command_lines:
        done.append(tuple(options))
        try:
            exit_code = subprocess.call([found, *options], env=env, cwd=cwd, stdout=output)
        except OSError as error:
            raise RunError(str(found), f"cannot be started: {error.strerror or error}") from error
        if exit_code:
            break
    return CannRun(
        program=found,
        command_lines=tuple(done),
        exit_code=exit_code,
        banks=take_in(soc_version, before, root),
    )
