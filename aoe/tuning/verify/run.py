"""Measure records of a bank again on this machine, each alone, as tuning measures its winners.

select (all, a sample, the stale or the worst ones) -> compile -> fresh pairs against ONNX Runtime
-> verdict -> write back what was decided: time, interval, who measured it where and when

What a record of a subgraph is about is in its model: it is measured where that is given.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import cast

from aoe.bank.damage import without_damaged
from aoe.bank.journal import BankJournal
from aoe.bank.operators import bank_root
from aoe.device.toolchain import find_toolchain
from aoe.entry.input_shapes import parse_input_shape
from aoe.entry.protocol import ModelSource
from aoe.errors import OptionError
from aoe.execute.compiling import KernelCompilers
from aoe.folders.scratch import ScratchFolder, sweep_scratch
from aoe.settings import accept_busy as believes_busy
from aoe.settings import environment, lock_path
from aoe.tuning.engine.parts import REAL_ENGINE, EngineParts
from aoe.tuning.mode import TuneSettings
from aoe.tuning.policies import final_policy
from aoe.tuning.progress import Progress, TellProgress, progress_of
from aoe.tuning.registry import KINDS
from aoe.tuning.tasks.rewrites.subgraphs import rules_of
from aoe.tuning.tune_context import fingerprint, object_cache
from aoe.tuning.verify.records import (
    MeasurableRecord,
    PassedOver,
    RecordReader,
    VerifiedBank,
    VerifiedRecord,
    Verifier,
    VerifyContext,
    measured_by,
    records_to_measure,
    write_back,
)
from aoe.tuning.verify.undecided import DecidedOperator
from aoe.tuning.verify.verdict import Verified, verdict_on
from aoebank import Drift


def verify(
    bank: str | os.PathLike[str] | None = None,
    *,
    models: Sequence[str | os.PathLike[str]] = (),
    input_shape: str | None = None,
    sample: int | None = None,
    stale_only: bool = False,
    worst: bool = False,
    soc_version: str | None = None,
    core_num: int | None = None,
    seed: int = 0,
    accept_busy: bool | None = None,
    dry_run: bool = False,
    progress: Progress | TellProgress | None = None,
    engine: EngineParts = REAL_ENGINE,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> VerifiedBank:
    """Measure records of a bank again on this machine, as the command `aoe verify` does.

    Args:
        bank: Root of the bank; None for what `TUNE_BANK_PATH` and the other variables say.
        models: Files of the models whose subgraphs are measured, ONNX or tuned ones (`.om`).
        input_shape: Shapes of inputs they leave open, `"name:1,3,224,224;other:1,16"`.
        sample: Most records, drawn with `seed`; None for all.
        stale_only: Whether only records of another environment are measured (`aoebank stale`).
        worst: Whether those with the smallest recorded gain come first.
        soc_version: Target; None for this machine.
        core_num: Records for so many cores; None for every usable core.
        seed: Of the sample and of inputs.
        accept_busy: Whether figures taken on a busy machine are believed; None for what
            `AOE_ACCEPT_BUSY` says.
        dry_run: Whether nothing is written into the bank.
        progress: As for `aoe.tune`; None for silence.
        engine: As for `aoe.tune`.
        env: Environment variables; None for those of the process.
        cwd: Directory relative paths are taken from; None for that of the process.

    Returns:
        What was found out; `holds` is False if a gain is weaker or lost.

    Raises:
        OptionError: a number of records or cores that cannot be meant.
        AoeError: no such target here, no compiler, a model that cannot be read.
        AoebankError: the bank cannot be used.
    """
    if sample is not None and sample < 1:
        raise OptionError("sample", "measures nothing", got=sample, expected="1 or more")
    env = environment() if env is None else env
    cwd, shown = cwd or Path.cwd(), progress_of(progress)
    device, target = engine.resolve_target(soc_version, core_num)
    named = {} if bank is None else {"TUNE_BANK_PATH": str(cwd / bank)}
    root = bank_root({**env, **named}, cwd)
    toolchain = find_toolchain(env)
    engine.check_toolchain(toolchain, target)
    versions = engine.versions()
    journal = BankJournal(
        root,
        target.soc_version,
        fingerprint=fingerprint(target, versions),
        model={},
        engine_version=versions["aoe"],
    )
    sweep_scratch()
    turns = engine.open_turns(lock_path(env), device.cores(), shown.warn, lambda: math.inf)
    objects = object_cache(TuneSettings(model=root), env, cwd, target, shown.warn)
    shapes = parse_input_shape(input_shape)
    with ScratchFolder("verify") as scratch:
        context = VerifyContext(
            journal=journal,
            device=device,
            target=target,
            models=[ModelSource(path=cwd / one, shapes=shapes, env=env) for one in models],
            rules=rules_of(engine),
            scratch=scratch,
            policy=final_policy(
                target.core_num,
                accept_busy=believes_busy(env) if accept_busy is None else accept_busy,
            ),
            seed=seed,
            who={"seed": seed, **measured_by()},
            dry_run=dry_run,
        )
        readers = _readers(context)
        seen = [*_damaged(journal, shown), *records_to_measure(journal, readers)]
        known = [one for one in seen if not isinstance(one, PassedOver)]
        wanted = [one for one in known if one.drift != Drift() or not stale_only]
        chosen = _chosen(wanted, sample=sample, worst=worst, seed=seed)
        shown.step(f"{len(chosen)} of {len(seen)} records are measured again")
        still_open = [] if stale_only else [one for of in readers for one in of.undecided()]
        with (
            engine.open_runner(device, target, toolchain, turns) as runner,
            closing(KernelCompilers(runner, objects)) as compilers,
        ):
            records = tuple(_measured(context, chosen, compilers, shown))
            decided = tuple(_told(decide(compilers), shown) for decide in still_open)
    return VerifiedBank(
        root=root,
        target=target,
        records=records,
        decided=decided,
        passed_over=tuple(one for one in seen if isinstance(one, PassedOver)),
        left=len(known) - len(chosen),
        dry_run=dry_run,
    )


def _readers(context: VerifyContext) -> list[RecordReader]:
    """Return a reader of records for each kind of task."""
    names = [kind.verifier for kind in KINDS.values() if kind.verifier]
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
        found = verdict_on(one.recorded, one.answer.measure(one.recorded, compilers))
        name = f"{one.op_type} {one.record.key[:8]}"
        written = False
        if found.measurement is not None and found.is_decided and not context.dry_run:
            assert found.estimate is not None
            own = one.answer.facts(one.recorded)
            facts = {"verdict": found.verdict.value, **context.who, **own}
            written = write_back(context.journal, one, found.measurement, found.estimate, facts)
        progress.step(f"[{number}/{len(chosen)}] {name}: {found.verdict}{_because(found)}")
        yield VerifiedRecord(one=one, found=found, written=written)


def _told(decided: DecidedOperator, progress: Progress) -> DecidedOperator:
    """Tell what has become of an undecided operator."""
    name, found = decided.one.workload.op_type, decided.found
    progress.step(f"undecided {name}: {found.verdict}{_because(found)}")
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


def _because(found: Verified) -> str:
    estimate = found.estimate
    figure = f"{estimate.median:.2f}x" if estimate is not None else ""
    words = [word for word in (figure, found.reason) if word]
    return f" ({', '.join(words)})" if words else ""
