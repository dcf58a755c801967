"""Compare two banks record by record: pair the files, pair the records, judge the times."""

from aoebank.ops.diff.change import ChangeKind, FileMove, RecordChange, Verdict
from aoebank.ops.diff.options import NOISE_RATIO, DiffOptions, parse_ratio
from aoebank.ops.diff.result import DiffResult, RollupRow
from aoebank.ops.diff.run import diff

__all__ = [
    "NOISE_RATIO",
    "ChangeKind",
    "DiffOptions",
    "DiffResult",
    "FileMove",
    "RecordChange",
    "RollupRow",
    "Verdict",
    "diff",
    "parse_ratio",
]
