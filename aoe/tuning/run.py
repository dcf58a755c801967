"""A whole run: checks everything that can go wrong first, then hands over to the mode."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from aoe.bank.journal import BankJournal, machine_fingerprint
from aoe.bank.operators import OperatorBank, bank_root
from aoe.device.compiler import check_toolchain
from aoe.device.registry import resolve_target
from aoe.device.toolchain import find_toolchain
from aoe.entry.imported_model import ImportedModel
from aoe.entry.input_shapes import parse_input_shape
from aoe.entry.protocol import ModelSource
from aoe.entry.registry import find_entry
from aoe.errors import OptionError, OutputError
from aoe.execute.runner import Runner
from aoe.results.files import result_name, timestamp_of
from aoe.settings import TuneSettings, work_path
from aoe.target import Target
from aoe.tuning.opat.result import OpatResult
from aoe.tuning.opat.run import Opat, OpatPlaces
from aoe.tuning.opat.writer import ResultWriter
from aoe.tuning.progress import Progress
from aoe.tuning.search.registry import SEARCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What `tune` did and where it left it."""

    opat: OpatResult
    target: Target
    bank_root: Path
    results: Path
    result_file: Path


def tune(
    settings: TuneSettings,
    *,
    env: Mapping[str, str],
    cwd: Path,
    progress: Progress,
    now: datetime,
) -> TuneResult:
    """Tune a model as `settings` say.

    Everything that needs no measuring is checked before anything is measured.

    Raises:
        AoeError: bad input, no compiler, no place to write; see the subclasses.
        AoebankError: the bank cannot be used.
    """
    source = ModelSource(
        path=settings.model,
        shapes=parse_input_shape(settings.input_shape),
        weight=settings.weight,
    )
    entry = find_entry(settings.framework, source)
    device, target = resolve_target(settings.soc_version, settings.core_num)
    root = bank_root(env, cwd)
    _check_search(settings.search)
    toolchain = find_toolchain(env)
    check_toolchain(toolchain, target)
    model = entry.load(source)
    if target.doubt:
        progress.step(f"named {target.soc_version} after its features: {target.doubt}")
    versions = library_versions()
    stamp = timestamp_of(now)
    name = f"{model.name}_{stamp}"
    om_file, results = _result_places(settings, model, name, env, cwd)
    log = results if settings.output is not None else work_path(env, cwd)
    writer = ResultWriter(
        results,
        log / result_name("opat", stamp, os.getpid()),
        target=target,
        model={"name": model.name, "path": str(model.path), "sha256": model.sha256},
        versions=versions,
    )
    bank = _open_bank(root, target, model, versions)
    with (
        tempfile.TemporaryDirectory(prefix="aoe_", ignore_cleanup_errors=True) as scratch,
        Runner(device, target, toolchain) as runner,
    ):
        opat = Opat(
            model,
            settings,
            runner=runner,
            bank=bank,
            places=OpatPlaces(
                scratch=Path(scratch), om_file=om_file, results=results, tuning_name=name
            ),
            progress=progress,
            versions=versions,
            writer=writer,
        ).run()
    return TuneResult(
        opat=opat,
        target=target,
        bank_root=root,
        results=results,
        result_file=writer.result_file,
    )


def _open_bank(
    root: Path, target: Target, model: ImportedModel, versions: Mapping[str, str]
) -> OperatorBank:
    journal = BankJournal(
        root,
        target.soc_version,
        fingerprint=fingerprint(target, versions),
        model={"name": model.name, "sha256": model.sha256},
        engine_version=versions["aoe"],
    )
    return OperatorBank(journal, core_num=target.core_num)


def _check_search(name: str) -> None:
    if name not in SEARCHES:
        raise OptionError("--search", "unknown search", got=name, expected=" or ".join(SEARCHES))


def library_versions() -> dict[str, str]:
    """Return the versions a measurement depends on."""
    return {
        "aoe": version("aoebank"),
        "halide": version("halide"),
        "onnxruntime": version("onnxruntime"),
    }


def fingerprint(target: Target, versions: Mapping[str, str]) -> dict[str, str | int]:
    """Return the environment of a measurement, for the side-car of the bank."""
    return machine_fingerprint(
        target,
        features="-".join(target.features),
        onnxruntime=versions["onnxruntime"],
        halide=versions["halide"],
    )


def _result_places(
    settings: TuneSettings, model: ImportedModel, name: str, env: Mapping[str, str], cwd: Path
) -> tuple[Path, Path]:
    """Return the `.om` file to write and the directory of the reports."""
    output = settings.output
    if output is None:
        results = work_path(env, cwd) / "aoe_workspace" / name / "tunespace" / "result"
        return _writable(results) / f"{name}_tune.om", results
    output = cwd / output
    if output.suffix == ".om":
        return output, _writable(output.parent)
    return _writable(output) / f"{model.name}_tune.om", output


def _writable(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            str(directory),
            f"cannot be created: {error.strerror}",
            hint="give a directory you may write to with --output",
        ) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise OutputError(
            str(directory),
            "no permission to write there",
            hint="give a directory you may write to with --output",
        )
    return directory
