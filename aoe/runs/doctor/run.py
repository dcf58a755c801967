"""Look at everything a run needs before it begins; nothing is tuned, and nothing written stays."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path

from aoe.device.protocol import CheckUp, Soundness
from aoe.folders.ownership import check_own_folder
from aoe.runs.configuration.options import DEVICE_VARIABLE
from aoe.runs.configuration.resolving import ResolvedSetting, RunConfiguration
from aoe.settings import cache_path
from aoebank import AoebankError, find_toolkit, plural, resolve_bank

ENGINE = ("onnxruntime", "halide", "onnx", "numpy", "scikit-learn")
_BESIDE = ("aoebank", "torch")
_NEEDED_BYTES, _PLENTY_BYTES, _GIB = 200 << 20, 2 << 30, 1 << 30
INSTALL_ENGINE = "python -m pip install 'aoebank[engine]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Findings of a check-up."""

    settings: tuple[ResolvedSetting, ...]  # Every setting with its value, in the order of the table
    checks: tuple[CheckUp, ...]  # Everything else

    @property
    def is_ready(self) -> bool:
        """True if nothing would stop a run."""
        return all(check.verdict is not Soundness.STOPS for check in self.checks)


def examine(
    configuration: RunConfiguration,
    *,
    env: Mapping[str, str],
    cwd: Path,
    warnings: Sequence[str] = (),
) -> Examination:
    """Look at settings, versions, compiler, machine, places and noise.

    Args:
        configuration: Of the run that is asked about.
        env: Environment variables.
        cwd: Where relative paths start.
        warnings: What a run would say about the environment.
    """
    caveats = [
        CheckUp(name="environment", found=text, verdict=Soundness.DOUBTFUL, advice="unset it")
        for text in warnings
    ]
    checks = [*caveats, *_settings(configuration), *check_versions()]
    missing = any(check.verdict is Soundness.STOPS for check in checks if check.name == "versions")
    checks += [check_bank(env, cwd), *_disks(configuration, env, cwd), check_cache(env)]
    checks.append(_toolkit(env))
    if not missing:
        checks += _machine(configuration, env)
    return Examination(settings=tuple(configuration.settings.values()), checks=tuple(checks))


# ---- what was asked for ----


def _settings(configuration: RunConfiguration) -> Iterator[CheckUp]:
    wrong = [one for one in configuration.settings.values() if one.error is not None]
    for one in wrong:
        assert one.error is not None
        yield _stopped_by(one.error, "settings")
    if not wrong:
        yield CheckUp(name="settings", found="every value can be meant")


# ---- what is installed ----


def check_versions(version_of: Callable[[str], str] = installed) -> tuple[CheckUp, ...]:
    """Return the versions figures depend on; without the engine nothing is tuned."""
    versions: dict[str, str] = {}
    for name in (*_BESIDE, *ENGINE):
        try:
            versions[name] = version_of(name)
        except PackageNotFoundError:
            continue
    missing = [name for name in ENGINE if name not in versions]
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    found = f"Python {sys.version.split()[0]}, {listed}"
    if not missing:
        return (CheckUp(name="versions", found=found),)
    return (
        CheckUp(
            name="versions",
            found=f"{found}; not installed: {', '.join(missing)}",
            verdict=Soundness.STOPS,
            advice=INSTALL_ENGINE,
        ),
    )


def _toolkit(env: Mapping[str, str]) -> CheckUp:
    place = find_toolkit(env)
    return CheckUp(name="CANN", found=f"a toolkit by {place}" if place else "no toolkit")


# ---- where things go ----


def check_bank(env: Mapping[str, str], cwd: Path) -> CheckUp:
    """Return the check of the custom bank: its path, and whether it is writable."""
    try:
        root = resolve_bank(env=env, cwd=cwd).root
    except AoebankError as error:
        return _stopped_by(error, "bank")
    if root.exists() and not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return CheckUp(
            name="bank",
            found=f"{root} may not be read, written and searched",
            verdict=Soundness.STOPS,
            advice=f"chmod u+rwx {root}, or name another place with TUNE_BANK_PATH",
        )
    return CheckUp(name="bank", found=f"{root}{'' if root.exists() else ', made by the first run'}")


def check_cache(env: Mapping[str, str]) -> CheckUp:
    """Return the check of the caches: their paths, and that nobody else can write there."""
    root = cache_path(env)
    if root is None:
        return CheckUp(name="cache", found="none: neither XDG_CACHE_HOME nor HOME is set")
    try:
        check_own_folder(root)
    except OSError as error:
        return CheckUp(
            name="cache",
            found=f"{root} is not used: {error.strerror}",
            verdict=Soundness.DOUBTFUL,
            advice="chmod go-w, or name another place with XDG_CACHE_HOME",
        )
    return CheckUp(name="cache", found=str(root))


def _disks(configuration: RunConfiguration, env: Mapping[str, str], cwd: Path) -> Iterator[CheckUp]:
    work = configuration.settings["work_path"].value
    yield check_disk("disk for results", cwd / str(work or ""))
    yield check_disk("disk for scratch files", Path(env.get("TMPDIR") or "/tmp"))


def check_disk(name: str, place: Path, free_bytes: int | None = None) -> CheckUp:
    """Return the check of a disk: its free space, and whether it is writable.

    Args:
        name: What for.
        place: A folder, or where one is to be made.
        free_bytes: Bytes that are free; None asks the system.
    """
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free if free_bytes is None else free_bytes
    found = f"{free / _GIB:.1f} GiB free in {there}"
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return CheckUp(
            name=name,
            found=f"{there} may not be written",
            verdict=Soundness.STOPS,
            advice="name another place with --output, ASCEND_WORK_PATH or TMPDIR",
        )
    if free >= _PLENTY_BYTES:
        return CheckUp(name=name, found=found)
    return CheckUp(
        name=name,
        found=found,
        verdict=Soundness.STOPS if free < _NEEDED_BYTES else Soundness.DOUBTFUL,
        advice="make room: a run writes the model about three times",
    )


# ---- what it runs on ----


def _machine(configuration: RunConfiguration, env: Mapping[str, str]) -> Iterator[CheckUp]:
    from aoe.device.registry import default_device
    from aoe.folders.turns import Turns
    from aoe.runs.doctor.noise import check_noise
    from aoe.settings import lock_path

    device, told = default_device(), list[str]()
    with ExitStack() as pinned:
        asked = configuration.settings["device"]
        if asked.value is not None and asked.error is None:
            number = configuration.get("device", int)
            try:
                pinned.enter_context(device.pinned(number, asked.place))
            except AoebankError as error:
                is_passed_over = asked.place == DEVICE_VARIABLE and len(device.numbers()) == 1
                stopped = _stopped_by(error, "device")
                doubtful = replace(stopped, verdict=Soundness.DOUBTFUL)
                yield doubtful if is_passed_over else stopped
        yield from _target(configuration, env)
        yield from device.check_up()
        try:
            yield check_noise(device, Turns(lock_path(env), device.cores(), told.append))
        except AoebankError as error:
            yield _stopped_by(error, "noise")
        yield _locks(lock_path(env), told)


def _target(configuration: RunConfiguration, env: Mapping[str, str]) -> Iterator[CheckUp]:
    from aoe.device.compiler import check_toolchain
    from aoe.device.registry import resolve_target
    from aoe.device.toolchain import find_toolchain, for_compiler

    asked = (configuration.settings[name] for name in ("soc_version", "aicore_num"))
    soc_version, cores = (one.value if one.error is None else None for one in asked)
    assert soc_version is None or isinstance(soc_version, str)
    assert cores is None or isinstance(cores, int)
    try:
        _, target = resolve_target(soc_version, cores)
    except AoebankError as error:
        yield _stopped_by(error, "target")
        return
    precisions = ", ".join(precision.value for precision in target.precisions)
    yield CheckUp(
        name="target",
        found=f"{target.soc_version} ({target.cpu_model}), {plural(target.core_num, 'core')}, "
        f"{precisions}",
        advice=f"named after its features: {target.caveat}" if target.caveat else "",
    )
    try:
        toolchain = find_toolchain(env)
        check_toolchain(toolchain, target)
    except AoebankError as error:
        yield _stopped_by(error, "compiler")
        return
    told: list[str] = []
    for_compiler(target, toolchain, told.append)
    yield CheckUp(
        name="compiler",
        found=" ".join(toolchain.command),
        verdict=Soundness.DOUBTFUL if told else Soundness.GOOD,
        advice="".join(told),
    )


def _locks(folder: Path, told: list[str]) -> CheckUp:
    if not any("without a lock" in text for text in told):
        return CheckUp(name="locks", found=str(folder))
    return CheckUp(
        name="locks",
        found=told[-1],
        verdict=Soundness.DOUBTFUL,
        advice="name a folder you may write to with AOE_LOCK_PATH, the same for all runs here",
    )


def _stopped_by(error: AoebankError, name: str) -> CheckUp:
    return CheckUp(
        name=name, found=error.headline, verdict=Soundness.STOPS, advice=error.hint or ""
    )
