"""A grouping of gradients in a bank, as if it had been tuned here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aoe.bank.gradients import GradientBank
from aoe.bank.journal import BankJournal
from aoe.bank.records.gradient import GradientVerdict
from aoe.device.registry import default_device
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.trace import GradientTrace, model_hash
from aoe.measurement import SpeedupEstimate
from aoebank import Event


def record_grouping(folder: Path, name: str, sizes_bytes: Sequence[int]) -> int:
    """Put the grouping of a model into a bank, the last gradient alone; return its modelhash.

    Args:
        folder: Of the bank.
        name: Of the model.
        sizes_bytes: Of its parameters of float32 as it lists them; the last gets ready first.
    """
    count = len(sizes_bytes)
    trace = GradientTrace(
        sizes_bytes=tuple(reversed(sizes_bytes)),
        dtypes=("float32",) * count,
        names=tuple(f"gradient{place}" for place in range(count)),
        ready_us=tuple(10.0 * place for place in range(1, count + 1)),
        loops=8,
    )
    verdict = GradientVerdict(
        event=Event.ADD,
        world_size=2,
        backend="gloo",
        segmentation=Segmentation(ends=(1, count)),
        estimate=SpeedupEstimate(median=1.3, low=1.2, high=1.4, pairs=24, coverage=0.95),
    )
    journal = BankJournal(
        folder,
        default_device().describe().soc_version,
        fingerprint={"threads": 1},
        model={"name": name},
        engine_version="1",
    )
    key = model_hash(trace.dtypes, tuple(sizes_bytes))
    GradientBank(journal).save(key, trace, verdict)
    return key
