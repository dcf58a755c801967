"""The parts of the engine a run may replace: runner, device, compiler check, clock, rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aoe.device.protocol import Device
    from aoe.device.toolchain import Toolchain
    from aoe.execute.runner import Runner
    from aoe.execute.workers.remote_pool import OpenRemotePool, RemotePool
    from aoe.folders.turns import Turns
    from aoe.graph.rewrites.protocol import RewriteRule
    from aoe.measurement import MeasurePolicy
    from aoe.ort.profile import ModelProfile, ProfileModel
    from aoe.target import Target


# Each default imports what it calls when it is called: `aoe --help` loads no Halide.


def _resolve_target(soc_version: str | None, core_num: int | None) -> tuple[Device, Target]:
    from aoe.device.registry import resolve_target

    return resolve_target(soc_version, core_num)


def _check_toolchain(toolchain: Toolchain, target: Target) -> None:
    from aoe.device.compiler import check_toolchain

    check_toolchain(toolchain, target)


def _open_turns(
    folder: Path | None,
    cores: Sequence[str],
    on_event: Callable[[str], None],
    left_s: Callable[[], float],
) -> Turns:
    from aoe.folders.turns import Turns

    return Turns(folder, cores, on_event, left_s)


def _open_runner(device: Device, target: Target, toolchain: Toolchain, turns: Turns) -> Runner:
    from aoe.execute.runner import Runner

    return Runner(device, target, toolchain, turns)


def _open_remote_pool(
    workers: str,
    device: Device,
    target: Target,
    *,
    versions: Mapping[str, str],
    policy: MeasurePolicy,
    on_event: Callable[[str, bool], None],
) -> AbstractContextManager[RemotePool]:
    from aoe.execute.workers.remote_pool import open_remote_pool

    return open_remote_pool(
        workers, device, target, versions=versions, policy=policy, on_event=on_event
    )


def _profile_model(*model: Any, **how: Any) -> ModelProfile:
    from aoe.ort.profile import profile_model

    return profile_model(*model, **how)


def library_versions() -> dict[str, str]:
    """Return the versions a measurement depends on."""
    return {
        "aoe": version("aoebank"),
        "halide": version("halide"),
        "onnxruntime": version("onnxruntime"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """Replaceable parts of a run; each is the real one unless the caller gives another."""

    # Gives device and target of `--soc_version` and `--aicore_num`.
    resolve_target: Callable[[str | None, int | None], tuple[Device, Target]] = _resolve_target
    # Raises `BuildError` or `ToolchainError` if no kernel can be compiled.
    check_toolchain: Callable[[Toolchain, Target], None] = _check_toolchain
    # Makes the turns in which the runs on one machine measure.
    open_turns: Callable[
        [Path | None, Sequence[str], Callable[[str], None], Callable[[], float]], Turns
    ] = _open_turns
    # Starts the measuring worker.
    open_runner: Callable[[Device, Target, Toolchain, Turns], Runner] = _open_runner
    # Opens the workers of `--workers`, as `open_remote_pool` of `aoe.execute.workers.remote_pool`.
    open_remote_pool: OpenRemotePool = _open_remote_pool
    # Times a model node by node, as `aoe.ort.profile.profile_model`.
    profile_model: ProfileModel = _profile_model
    # Gives the versions a measurement depends on.
    versions: Callable[[], Mapping[str, str]] = library_versions
    clock: Callable[[], float] = time.monotonic  # Monotonic seconds
    # Modes of tuning (`Mode`) by job type; None for those of `aoe.tuner.registry`.
    modes: Mapping[str, Any] | None = None
    # Rewrite rules of subgraph tuning by name; None for all of them.
    rules: Mapping[str, RewriteRule] | None = None
    fuses: bool = True  # False if subgraph tuning leaves every node a kernel of its own
    # False if subgraph tuning leaves every node in the layout of the default.
    plain_layouts: bool = True


REAL_ENGINE = EngineParts()
"""The engine as it is installed."""
