"""Carry out the plan of a file: choose bytes, make none."""

from __future__ import annotations

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.raw_splice import splice_raw
from aoebank.ops.merge.plan import FilePlan, Pick
from aoebank.ops.merge.versions import Versions


def apply_file(
    plan: FilePlan, *, base: ParsedFile | None, ours: ParsedFile | None, theirs: ParsedFile | None
) -> bytes | None:
    """Return the merged file, or None if there is to be none.

    Whatever conflicts there are, it is a valid bank: their keys have what ours has. Each record
    is one of the inputs byte for byte; of one with the alternatives of both sides that holds
    for each alternative.

    Args:
        plan: Made from these very versions.
        base: As for `decide_file`; so for the others.
    """
    versions = Versions(base=base, ours=ours, theirs=theirs)
    frame = versions.of(plan.frame) if plan.frame else None
    if frame is None or plan.is_gone:
        return None
    if plan.is_frame:
        return frame.data

    def raw(pick: Pick) -> bytes:
        return pick.raw if pick.raw is not None else versions.raw(pick.source, pick.number)

    return splice_raw(
        frame,
        replaced={number: raw(pick) for number, pick in plan.replaced.items()},
        removed=plan.removed,
        added=[(each.after, raw(each.pick)) for each in plan.added],
    )
