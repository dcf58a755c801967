"""A workload of one pooling and the chain behind it."""

from __future__ import annotations

from dataclasses import dataclass

from aoe.kernels.family import Support
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.movement.loops import result_loops
from aoe.kernels.movement.windows import SplitAround, WindowReads, read_neighbours, split_around
from aoe.operators import number, op_key
from aoe.operators.windows import WINDOW_OPERATORS, Window, windows_of
from aoe.workload import Operation, Workload

_WRITTEN_OUT_MAX = 81
"""Elements of a window up to which it is written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """What a kernel of this family does.

    Attributes:
        split: The pooling, and the chain behind it.
        nest: Loops over the result, and what is read in them.
        windows: By dimension, outermost first.
    """

    split: SplitAround
    nest: WindowReads
    windows: dict[int, Window]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Loops over the result, outermost first."""
        return self.nest.axes

    @property
    def is_largest(self) -> bool:
        """True for the largest of a window, False for its mean."""
        return self.split.anchor.op_type == "MaxPool"

    @property
    def power(self) -> int:
        """The power elements of a window are summed up in, 0 where they are not."""
        if self.split.anchor.op_type != "LpPool":
            return 0
        return int(number(self.split.anchor.attributes, "p", 2))

    @property
    def counts_padding(self) -> bool:
        """True if zeros around the image count for a mean."""
        return bool(self.split.anchor.attributes.get("count_include_pad", 0))

    def loop(self, dimension: int) -> str:
        """Return the loop over the results of a dimension."""
        return self.nest.dimensions[dimension][0]

    def is_inside(self, dimension: int) -> bool:
        """True if no window of a dimension reaches beyond the elements there are."""
        window = self.windows[dimension]
        if self.split.workload.is_open:  # at other extents the last may
            return window.before == window.behind == 0 and not _reaches_beyond(self.split.anchor)
        return window.is_inside

    @property
    def last(self) -> int:
        """The innermost dimension with windows."""
        return max(self.windows)


def read_pooling(workload: Workload) -> Pooling | Support:
    """Return the pooling of a workload, or the reason why it is not one with a chain."""
    found = [op for op in workload.operations if op_key(op) in WINDOW_OPERATORS]
    if len(found) != 1:
        return Support(f"{len(found)} poolings")
    split = split_around(workload, found[0])
    if isinstance(split, Support):
        return split
    windows = {
        at: window
        for at, window in enumerate(windows_of(found[0], split.given), start=2)
        if window.size > 1 or window.stride > 1 or window.before or window.behind
    }
    size = 1
    for window in windows.values():
        size *= window.size
        if max(window.before, window.behind) >= window.reach or window.made == 1:
            return Support("a window in the padding, or one of all there is")
    if not windows or size > _WRITTEN_OUT_MAX:
        return Support(f"windows of {size} elements")
    if workload.is_open and len(windows) < 2:
        return Support("windows of any image along one dimension")
    if found[0].op_type == "LpPool" and number(found[0].attributes, "p", 2) not in (1, 2):
        return Support("LpPool of another power than 1 or 2")
    counts_padding = bool(found[0].attributes.get("count_include_pad", 0))
    if workload.is_open and counts_padding and _reaches_beyond(found[0]):
        return Support("means of any image that count what lies beyond the padding")
    nest = read_neighbours(split, frozenset(windows), result_loops(workload.output))
    if isinstance(nest, Support):
        return nest
    return Pooling(split=split, nest=nest, windows=windows)


def _reaches_beyond(pooling: Operation) -> bool:
    """True if the last window reaches beyond the image and its `pads`, for some extents."""
    same = str(pooling.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
    return same or bool(pooling.attributes.get("ceil_mode", 0))
