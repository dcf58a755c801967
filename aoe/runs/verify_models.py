"""Whole models: what a bank has for a model is judged in it, as by the next `aoe` run.

It is such a run, in which nothing is searched: operators and subgraphs have what the bank has, and
the validator decides what stays in the model.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aoe.bank.journal import MANNERS, BankJournal
from aoe.entry.tuned_model import SUFFIX
from aoe.errors import AoeError, OptionError, RunError
from aoe.folders.scratch import ScratchFolder
from aoe.runs.model_mode import ModelTuning
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import TunedCase, tune_with
from aoe.runs.verify_records import Holding, Verified, VerifiedModel, verdict_on
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.operator_choice import OperatorChoice
from aoe.tuner.parts import EngineParts
from aoe.tuner.progress import Progress
from aoe.validation.model_validator import (
    SLOWER_AT_A_POINT,
    ValidationResult,
    sure_loss,
)
from aoebank import Bank, Event

NOTHING_TO_JUDGE = "nothing to judge, the bank has nothing for it that may stay"
_TUNED_ANEW = "REPEAT_TUNE=True tunes it anew"
_MODES = ((JobType.OPAT,), (JobType.SGAT, JobType.OPAT))


def check_modes(how: TuneSettings) -> None:
    """Refuse modes whose answers cannot be judged without a search.

    Raises:
        OptionError: modes other than `opat`, or `sgat` and `opat` behind it.
    """
    if how.job_types not in _MODES:
        raise OptionError(
            "--job_type",
            "whole models are judged with their operators, or with subgraphs and operators",
            got=",".join(how.job_types),
            expected="2 (or opat), or 1,2 (or sgat,opat)",
            hint="the next aoe run decides the others",
        )


def verify_model(
    how: TuneSettings,
    journal: BankJournal,
    *,
    env: Mapping[str, str],
    cwd: Path,
    progress: Progress,
    engine: EngineParts,
    dry_run: bool,
) -> Iterator[VerifiedModel]:
    """Yield the verdict on a model, for each of its shapes; nothing is searched.

    Args:
        how: How the model is run. Without `output` no tuned model stays.
        journal: The bank; verdicts are noted there unless it is a dry run.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        progress: Is told what happens.
        engine: Runner, device and clock.
        dry_run: True to judge with a copy of the bank.

    Raises:
        AoebankError: the bank cannot be used.
    """
    assert isinstance(how.model, Path)
    shapes = how.input_shape or how.shape_range or ""
    with ScratchFolder("judge") as scratch:
        root = journal.bank.root
        if dry_run:
            root = _copy_of(journal, scratch / "bank")
        settings = replace(
            how,
            framework=None if how.model.suffix == SUFFIX else how.framework,
            output=how.output or scratch / "out",
            tune_ops=OperatorChoice(),  # of no operator
            max_tuning_count=0,  # for subgraphs
            repeat_tune=False,
            proves_settled=True,
            tuning_time_limit_s=None,
            stage_limits_s=(),
            workers=None,
        )
        before = _verdicts(journal)
        progress.step(f"whole model {how.model.name}: with what the bank has for it")
        try:
            tuned = tune_with(
                settings,
                env={**env, "TUNE_BANK_PATH": str(root)} if root.is_dir() else env,
                cwd=cwd,
                progress=progress,
                now=datetime.now(UTC),
                engine=engine,
            )
        except AoeError as error:  # what was found out about the bank before is told all the same
            yield _not_judged(how.model, shapes, error, progress)
            return
    after = _verdicts(journal)
    for case in tuned.cases or (TunedCase(shapes=shapes, report="", modes=tuned.modes),):
        modes = [mode for mode in case.modes if isinstance(mode, ModelTuning)]
        known = before.get(_identity_of(modes[-1]), [])
        found = _found([mode.validation for mode in modes])
        progress.step(f"whole model {how.model.name}: {found or NOTHING_TO_JUDGE}")
        yield VerifiedModel(
            model=how.model,
            shapes=case.shapes,
            found=found,
            kept=tuple(one.name for mode in modes for one in mode.validation.kept),
            dropped={name: why for mode in modes for name, why in mode.validation.dropped.items()},
            was_kept=Event.KEPT in dict(known).values(),
            written=after.get(_identity_of(modes[-1]), []) != known,
            processes=modes[-1].validation.processes,
            om_file=modes[-1].om_file if how.output is not None else None,
        )


def _copy_of(journal: BankJournal, root: Path) -> Path:
    """Return the root of a copy of a bank, with the subgraphs that may lie beside its root."""
    bank, copy = journal.bank, Bank(root)
    if bank.root.is_dir():
        shutil.copytree(bank.root, root, ignore_dangling_symlinks=True)
    else:  # the place banks have by default, which the first run makes
        root.mkdir()
    graphs = bank.graph_file(journal.soc_version).parent
    if graphs.is_dir() and not graphs.is_relative_to(bank.root):
        folder = copy.graph_file(journal.soc_version).parent
        shutil.copytree(graphs, folder, ignore_dangling_symlinks=True)
    return root


def _not_judged(model: Path, shapes: str, error: AoeError, progress: Progress) -> VerifiedModel:
    """Return a model that could not be read, or not be run to its end, undecided."""
    found = Verified(verdict=Holding.UNDECIDED, reason=error.headline)
    hint = f"; hint: {error.hint}" if error.hint else ""
    progress.warn(f"whole model {model.name}: {found}{hint}")
    return VerifiedModel(
        model=model,
        shapes=shapes,
        found=found,
        kept=(),
        dropped={},
        was_kept=False,
        written=False,
        error=None if isinstance(error, RunError) else error,
    )


def _found(validations: Sequence[ValidationResult[Any]]) -> Verified | None:
    """Return the verdict of a run's modes, None where they had nothing to judge."""
    if not any(one.is_changed or one.drops for one in validations):
        return None
    last = validations[-1]
    if last.is_changed:
        found = verdict_on(
            None,
            last.comparison.measurement,
            estimate=last.estimate,
            surely=last.surely,
            default="the untuned model",
        )
        if found.is_decided and sure_loss(last.points) is not None:
            found = replace(found, verdict=Holding.LOST, reason=SLOWER_AT_A_POINT)
        if found.verdict is Holding.LOST:
            return replace(found, reason=f"{found.reason}; {_TUNED_ANEW}")
        return found
    undecided = next((one.undecided for one in validations if one.undecided), "")
    if undecided:
        return Verified(verdict=Holding.UNDECIDED, reason=undecided)
    reasons = (why for one in validations for why in one.dropped.values())
    return Verified(verdict=Holding.LOST, reason=next(reasons, ""))


# ---- what the bank says of models ----

_Identity = tuple[str | None, ...]


def _identity_of(mode: ModelTuning[Any]) -> _Identity:
    """Return the identity of a model in side-cars, with the manner it was validated in."""
    streams = str(mode.streams) if mode.streams > 1 else None
    shape_range = mode.shape_range if isinstance(mode, OpatResult) else ""
    return mode.model["sha256"], streams, shape_range or None


def _verdicts(journal: BankJournal) -> Mapping[_Identity, list[tuple[str, Event]]]:
    """Return the key and the event of every verdict on a kernel or rewrite, oldest first, by model.

    Verdicts for another number of cores are left out; streams have one core each, and their number.

    Raises:
        BankFormatError: a side-car is corrupt.
    """
    found = defaultdict[_Identity, list[tuple[str, Event]]](list)
    bank = Bank(journal.bank.root)
    graphs, own = bank.graph_file(journal.soc_version), journal.fingerprint["core_num"]
    for file in {*bank.iter_files(), graphs}:
        if file != graphs and not file.is_relative_to(bank.root / journal.soc_version):
            continue
        for line in bank.iter_provenance(file):
            if line.event not in (Event.KEPT, Event.DROPPED):
                continue
            if "streams" not in line.model and line.fingerprint.get("core_num", own) != own:
                continue
            said = (line.model.get(name) for name in ("sha256", *MANNERS))
            identity = tuple(None if one is None else str(one) for one in said)
            found[identity].append((line.key, line.event))
    return found
