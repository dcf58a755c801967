"""Compare two banks record by record: pair the files, pair the records, judge the times."""

from aoebank.ops.diff.change import ChangeKind, FileMove, RecordChange, TimeVerdict
from aoebank.ops.diff.groups import EditGroup, group_edits, group_shapes
from aoebank.ops.diff.options import DiffOptions, parse_ratio
from aoebank.ops.diff.result import DiffResult, RollupRow
from aoebank.ops.diff.run import diff

__all__ = [
    "ChangeKind",
    "DiffOptions",
    "DiffResult",
    "EditGroup",
    "FileMove",
    "RecordChange",
    "RollupRow",
    "TimeVerdict",
    "diff",
    "group_edits",
    "group_shapes",
    "parse_ratio",
]
