"""Measure records of a bank again on this machine, each alone, as tuning measures its winners.

select (all, a sample, the stale or the worst ones) -> compile -> fresh pairs against ONNX Runtime
-> verdict -> write back what was decided: time, interval, who measured it where and when

What a record of a subgraph is about is in its model: it is measured where that is given. A given
model is judged whole, too, as by the next `aoe` run (`verify_models.py`).
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from aoe.bank.damage import without_damaged
from aoe.bank.journal import BankJournal, fingerprint
from aoe.bank.operators import bank_root
from aoe.device.toolchain import Toolchain, find_toolchain, for_compiler
from aoe.entry.input_shapes import parse_input_shape
from aoe.entry.protocol import ModelSource
from aoe.entry.tuned_model import SUFFIX
from aoe.errors import ModelNotFoundError, OptionError
from aoe.execute.compiling import KernelCompilers
from aoe.folders.scratch import ScratchFolder, sweep_scratch
from aoe.results.files import bank_of_results
from aoe.runs.given_cases import given_cases, with_stored_cases
from aoe.runs.verify_models import check_modes, verify_model
from aoe.runs.verify_records import (
    DecidedOperator,
    MeasurableRecord,
    PassedOver,
    RecordReader,
    VerifiedBank,
    VerifiedRecord,
    Verifier,
    VerifyContext,
    measured_by,
    records_to_measure,
    verdict_on,
    write_back,
)
from aoe.settings import LARGEST_SEED, environment, lock_path, parse_whole
from aoe.settings import accept_busy as believes_busy
from aoe.target import Target
from aoe.tasks.rewrites.subgraphs import rules_of
from aoe.tuner.mode import TuneSettings
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoe.tuner.policies import final_policy
from aoe.tuner.progress import Progress, TellProgress, progress_of
from aoe.tuner.registry import KINDS
from aoe.tuner.tune_context import object_cache
from aoebank import Drift, plural


def verify(
    bank: str | os.PathLike[str] | None = None,
    *,
    models: Sequence[str | os.PathLike[str]] = (),
    input_shape: str | None = None,
    sample: int | None = None,
    stale_only: bool = False,
    worst: bool = False,
    only_undecided: bool = False,
    soc_version: str | None = None,
    core_num: int | None = None,
    seed: int = 0,
    accept_busy: bool | None = None,
    how: TuneSettings | None = None,
    dry_run: bool = False,
    progress: Progress | TellProgress | None = None,
    engine: EngineParts = REAL_ENGINE,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> VerifiedBank:
    """Measure records of a bank again on this machine, as the command `aoe verify` does.

    Args:
        bank: Root of the bank, or a directory of results; None for what `TUNE_BANK_PATH` and the
            other variables say.
        models: Files of models, ONNX or tuned ones (`.om`): their subgraphs are measured, and each
            is judged whole with what the bank has for it.
        input_shape: Shapes of inputs they leave open, `"name:1,3,224,224;other:1,16"`.
        sample: Most records, drawn with `seed`; None for all.
        stale_only: Whether only records of another environment are measured (`aoebank stale`).
        worst: Whether those with the smallest recorded gain come first.
        only_undecided: Whether no record is measured: only what a busy machine left undecided, and
            the given models.
        soc_version: Target; None for this machine.
        core_num: Records for so many cores; None for every usable core.
        seed: Of the sample and of inputs.
        accept_busy: Whether figures taken on a busy machine are believed; None for what `how` or
            `AOE_ACCEPT_BUSY` says.
        how: How the models are run: shapes, inputs, precision, `output`; the arguments above that
            say such things count more. None for the defaults.
        dry_run: Whether nothing is written into the bank.
        progress: As for `aoe.tune`; None for silence.
        engine: As for `aoe.tune`.
        env: Environment variables; None for those of the process.
        cwd: Directory relative paths are taken from; None for that of the process.

    Returns:
        What was found out; `holds` is False if a gain is weaker or lost. A model that cannot be
        judged whole has its error there.

    Raises:
        OptionError: a number of records or cores that cannot be meant, modes of `how` other than
            operator tuning, alone or behind subgraph tuning, or one file for several tuned models.
        AoeError: no such target here, no compiler, no such model, or one whose subgraphs cannot be
            read.
        AoebankError: the bank cannot be used.
    """
    sample, core_num = _count("sample", sample), _count("core_num", core_num)
    seed = parse_whole("seed", seed, most=LARGEST_SEED)
    _check_choice(sample, only_undecided=only_undecided, others=stale_only or worst)
    env, cwd = environment() if env is None else env, cwd or Path.cwd()
    given = {"soc_version": soc_version, "core_num": core_num, "accept_busy": accept_busy}
    how = _how(how, input_shape, env, seed=seed, **given)
    shown, paths = progress_of(progress), [cwd / one for one in models]
    _check_models(paths, how.output)
    device, target = engine.resolve_target(how.soc_version, how.core_num)
    device = device.with_operators([cwd / library for library in how.operators])
    toolchain, target = _compiler(engine, env, target, shown)
    root = bank_root(_naming(bank, env, cwd), cwd, writes=not dry_run)
    journal = _journal(root, target, engine.versions())
    sweep_scratch()
    turns = engine.open_turns(lock_path(env), device.cores(), shown.warn, lambda: math.inf)
    objects = object_cache(how, env, cwd, target, shown.warn)
    measured_in = () if only_undecided else paths
    with ScratchFolder("verify") as scratch:
        context = VerifyContext(
            journal=journal,
            device=device,
            target=target,
            models=[source for path in measured_in for source in _sources(how, path, env)],
            rules=rules_of(engine),
            scratch=scratch,
            policy=final_policy(target.core_num, accept_busy=how.accept_busy),
            seed=how.seed,
            who={"seed": how.seed, **measured_by()},
            dry_run=dry_run,
        )
        choose = partial(_chosen, sample=sample, worst=worst, seed=how.seed)
        work = _work_of(
            context, shown, choose, stale_only=stale_only, only_undecided=only_undecided
        )
        with (
            engine.open_runner(device, target, toolchain, turns) as runner,
            closing(KernelCompilers(runner, objects)) as compilers,
        ):
            records = tuple(_measured(context, work.chosen, compilers, shown))
            decided = tuple(_told(decide(compilers), shown) for decide in work.undecided)
    whole = () if stale_only else [replace(how, model=path) for path in paths]
    judge = partial(
        verify_model,
        journal=journal,
        env=env,
        cwd=cwd,
        progress=shown,
        engine=engine,
        dry_run=dry_run,
    )
    return VerifiedBank(
        root=journal.bank.root,
        target=target,
        records=records,
        decided=decided,
        models=tuple(one for model in whole for one in judge(model)),
        passed_over=work.passed_over,
        left=work.left,
        dry_run=dry_run,
    )


def _naming(
    bank: str | os.PathLike[str] | None, env: Mapping[str, str], cwd: Path
) -> Mapping[str, str]:
    """Return an environment that names a bank, or the one in a directory of results."""
    if bank is None:
        return env
    return {**env, "TUNE_BANK_PATH": str(bank_of_results(cwd / bank) or cwd / bank)}


def _compiler(
    engine: EngineParts, env: Mapping[str, str], target: Target, progress: Progress
) -> tuple[Toolchain, Target]:
    """Return the C compiler, and the target as far as it knows that one."""
    toolchain = find_toolchain(env)
    engine.check_toolchain(toolchain, target)
    return toolchain, for_compiler(target, toolchain, progress.warn)


def _count(name: str, value: int | None) -> int | None:
    return None if value is None else parse_whole(name, value, least=1)


def _check_choice(sample: int | None, *, only_undecided: bool, others: bool) -> None:
    """Refuse a choice of records that cannot be meant.

    Raises:
        OptionError: it is one.
    """
    if only_undecided and (sample is not None or others):
        raise OptionError(
            "undecided", "no record is measured", expected="none of sample, stale-only and worst"
        )


def _check_models(paths: Sequence[Path], output: Path | None) -> None:
    """Refuse models that are not there, before minutes go into records.

    Raises:
        ModelNotFoundError: one is not there.
        OptionError: they are several, and one file is to take the tuned ones.
    """
    if len(paths) > 1 and output is not None and output.suffix == SUFFIX:
        raise OptionError(
            "--output",
            "one file cannot take several tuned models",
            got=output,
            expected="a directory",
        )
    for path in paths:
        if not path.exists():
            raise ModelNotFoundError(f"--model={path}", "no such file")


def _how(
    how: TuneSettings | None,
    input_shape: str | None,
    env: Mapping[str, str],
    *,
    seed: int,
    **given: Any,
) -> TuneSettings:
    """Return the settings models are run with, changed as the arguments of `verify` say.

    Raises:
        OptionError: models are not judged in such modes.
    """
    found = how or TuneSettings(model=Path())
    check_modes(found)
    if input_shape is not None:
        found = replace(found, **given_cases([input_shape]))
    said = {name: value for name, value in given.items() if value is not None}
    said.setdefault("accept_busy", found.accept_busy or believes_busy(env))
    return replace(found, seed=seed or found.seed, **said)


def _sources(how: TuneSettings, path: Path, env: Mapping[str, str]) -> list[ModelSource]:
    """Return a model with each of its shapes; none of a range, which has no subgraphs."""
    if path.suffix == SUFFIX:
        how = with_stored_cases(replace(how, model=path, framework=None))
    if how.shape_range is not None:
        return []
    return [
        ModelSource(
            path=path,
            shapes=parse_input_shape(shapes),
            given=next(iter(how.inputs), None),
            output_nodes=how.out_nodes,
            env=env,
        )
        for shapes in how.shape_cases or (how.input_shape,)
    ]


def _journal(root: Path, target: Target, versions: Mapping[str, str]) -> BankJournal:
    return BankJournal(
        root,
        target.soc_version,
        fingerprint=fingerprint(target, versions),
        model={},
        engine_version=versions["aoe"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Records and undecided operators of a bank that are measured."""

    chosen: Sequence[MeasurableRecord]  # Records, in the order they are measured
    # What decides each operator a busy machine has left open.
    undecided: Sequence[Callable[[KernelCompilers], DecidedOperator]]
    passed_over: tuple[PassedOver, ...]  # Records that cannot be measured
    left: int  # How many that could be are not asked for


def _work_of(
    context: VerifyContext,
    progress: Progress,
    choose: Callable[[Sequence[MeasurableRecord]], Sequence[MeasurableRecord]],
    *,
    stale_only: bool,
    only_undecided: bool,
) -> _Work:
    """Return the records of a bank to measure again; print their number as progress."""
    readers, journal = _readers(context), context.journal
    damaged = _damaged(journal, progress)
    seen = [*damaged, *records_to_measure(journal, readers)]
    known = [one for one in seen if isinstance(one, MeasurableRecord)]
    wanted = [one for one in known if one.drift != Drift() or not stale_only]
    chosen = () if only_undecided else choose(wanted)
    progress.step(f"measuring {len(chosen)} of {plural(len(seen), 'record')} again")
    passed_over = [one for one in seen if isinstance(one, PassedOver)]
    if only_undecided:  # of no record is asked whether it could be measured
        passed_over = damaged
    return _Work(
        chosen=chosen,
        undecided=() if stale_only else [one for of in readers for one in of.undecided()],
        passed_over=tuple(passed_over),
        left=len(seen) - len(passed_over) - len(chosen),
    )


def _readers(context: VerifyContext) -> list[RecordReader]:
    """Return a reader of records for each kind of task."""
    kinds = KINDS.values()
    names = [name for kind in kinds for name in (kind.verifier, kind.training_verifier) if name]
    return [cast(Verifier, import_module(name)).reader(context) for name in names]


def _damaged(journal: BankJournal, progress: Progress) -> list[PassedOver]:
    """Return the files none of whose records can be measured, and tell."""
    found = without_damaged(journal.bank, journal.soc_version, may_write=False)
    for one in found:
        progress.warn(str(one))
    return [PassedOver(file=one.file, key="-", reason=one.problem) for one in found]


def _measured(
    context: VerifyContext,
    chosen: Sequence[MeasurableRecord],
    compilers: KernelCompilers,
    progress: Progress,
) -> Iterator[VerifiedRecord]:
    """Yield records measured again; what was decided is written back."""
    for number, one in enumerate(chosen, 1):
        measured = one.answer.measure(one.recorded, compilers)
        found = verdict_on(one.recorded, measured, default=one.answer.default)
        name = f"{one.op_type} {one.record.key[:8]}"
        written = False
        if found.measurement is not None and found.is_decided and not context.dry_run:
            assert found.estimate is not None
            own = one.answer.facts(one.recorded)
            facts = {"verdict": found.verdict.value, **context.who, **own}
            written = write_back(context.journal, one, found.measurement, found.estimate, facts)
        progress.step(f"[{number}/{len(chosen)}] {name}: {found}")
        yield VerifiedRecord(one=one, found=found, written=written)


def _told(decided: DecidedOperator, progress: Progress) -> DecidedOperator:
    """Print the outcome of an undecided operator as progress."""
    name, found = decided.one.workload.op_type, decided.found
    progress.step(f"undecided {name}: {found}")
    return decided


def _chosen(
    wanted: Sequence[MeasurableRecord], *, sample: int | None, worst: bool, seed: int
) -> Sequence[MeasurableRecord]:
    """Return the records that are asked for, in the order they are measured."""
    if worst:
        return sorted(wanted, key=_recorded_low)[:sample]
    if sample is None or sample >= len(wanted):
        return wanted
    drawn = random.Random(seed).sample(range(len(wanted)), sample)
    return [wanted[at] for at in sorted(drawn)]


def _recorded_low(one: MeasurableRecord) -> float:
    """Return the proven gain of a record; 1 where nothing is known."""
    return one.recorded.low if one.recorded is not None else 1.0
