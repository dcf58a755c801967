"""Make `tests/golden/aoebank/inputs/versions`: a bank with snapshots and a quarantine.

    PYTHONPATH=tests python -m support.make_versions_input

The same every time but for the bytes SQLite lays its pages out with. It is a history of schema
version 1 and stays one: later programs have to read it.
"""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

from aoebank import Bank, Record
from aoebank.model.digest import digest_of
from aoebank.model.quarantine import QuarantineEntry
from aoebank.testing.factories import make_provenance, make_record
from support import version_banks as banks

ROOT = Path(__file__).resolve().parents[1] / "golden" / "aoebank" / "inputs" / "versions"
OTHER = "Ascend910B2"


def make() -> None:
    """Write the bank anew."""
    shutil.rmtree(ROOT, ignore_errors=True)
    banks.put(ROOT, make_record(1), make_record(2))
    banks.put(ROOT, make_record(1), soc=OTHER)
    Bank(ROOT).append_provenance(banks.file_of(ROOT), [make_provenance(make_record(1).key)])
    banks.snap(ROOT, "first tuning", tag="v1")
    banks.put(ROOT, make_record(1, tile=99, cost_us=9.0), make_record(3))
    banks.drop(ROOT, make_record(2))
    banks.put(ROOT, make_record(1), op="LRN")
    banks.snap(ROOT, "drop of March\n\nfrom the other machine", minutes=60, tag="march")
    banks.put(ROOT, make_record(1, tile=50, cost_us=8.0))
    banks.snap(ROOT, "tuned again", minutes=120)
    entries = [
        _entry(make_record(2), "Softmax", banks.SOC, "wrong results on two cores", "T-12"),
        _entry(make_record(1), "LRN", banks.SOC, "hangs now and then", None),
        _entry(make_record(1), "Softmax", OTHER, "aicore error", "T-3", date(2020, 12, 31)),
    ]
    banks.keep_out(ROOT, *entries)
    (ROOT / ".aoebank" / ".gitignore").unlink()  # this history is to be committed


def _entry(
    record: Record, op: str, soc: str, reason: str, ticket: str | None, until: date | None = None
) -> QuarantineEntry:
    return QuarantineEntry(
        key=record.key,
        reason=reason,
        who="Ann <ann@example.org>",
        when="2026-01-03T03:04:05Z",
        soc_version=soc,
        op_type=op,
        strategy_sha256=digest_of(record.strategy),
        ticket=ticket,
        until=until,
        format=record.format,
    )


if __name__ == "__main__":
    make()
