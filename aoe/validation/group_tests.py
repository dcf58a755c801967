"""Finds the kernels that slow a model down by leaving groups of them out.

All kernels together are held against the sum of what each has proven alone, or of what profiles of
the model say where that is less. A group that saves less than it promised is halved until what
loses is alone: about log2(n) comparisons for one bad kernel among n. Kernels that stand beside each
other stay in one group as long as they can: what one of them costs may show in its neighbour, and a
reorder between two is needed until both are gone. Nothing is left out for saving too little to be
seen, only for a loss that shows in two comparisons. Where the time for comparisons is over, what is
not settled stays, for the last comparison to decide about all together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic

from aoe.errors import RunError
from aoe.measurement import Measurement, SpeedupEstimate, estimate_speedup
from aoe.validation.candidates import NO_TIMES, Drop, ModelTimes, P
from aoe.validation.comparing import TimeIsUpError

MOST_COMPARISONS = 24
PROVEN = 0.5
"""Part of their promise that kernels are held to which another model has kept: alone they save more
than in company, and that they lose nothing there is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Time a group of kernels saves: a share of the model's time with all kernels."""

    middle: float  # Estimate; negative where the group costs time
    half_width: float  # Of its interval
    measured: bool = True  # False if it follows from those of other groups

    @classmethod
    def of(cls, estimate: SpeedupEstimate) -> Saving:
        """Return the saving of a group, from the speed-up over the model without it."""
        middle = (estimate.low + estimate.high) / 2 - 1
        return cls(middle=middle, half_width=(estimate.high - estimate.low) / 2)

    @property
    def is_loss(self) -> bool:
        """True if the whole interval costs time."""
        return self.middle + self.half_width < 0

    def reaches(self, promise: float) -> bool:
        """True unless the whole interval falls short of what was promised."""
        return self.middle + self.half_width >= promise

    def is_doubtful(self, promise: float) -> bool:
        """True if it reaches what was promised only because it was not measured itself."""
        well_within = self.middle + self.half_width / 2 >= promise
        return not self.measured and self.reaches(promise) and not well_within

    def less(self, part: Saving) -> Saving:
        """Return the saving of the rest of the group if times add up."""
        return Saving(
            middle=self.middle - part.middle,
            half_width=math.hypot(self.half_width, part.half_width),
            measured=False,
        )


class GroupTests(Generic[P]):
    """The group tests of one model.

    Args:
        kernels: Kernels that compute rightly together.
        without: Measures the model without a group against the one with all that are kept.
        step: Is told what is dropped.
        left_s: Seconds until the time limit of the run.
        following_comparisons: Comparisons there has to be time for afterwards.
        comparison_s: What one should take.
        proven: Names of kernels that have stayed in a model like this one: half of what they
            promise will do.
        usual_share: What other kernels are held to of their promise: all of it, or what kernels
            have kept in other models.
        times: What profiles of the model say of the kernels, and which stand beside each other.
        streams: Callers that run the model at the same time: kernels promise a part of one call,
            the time from one run of the machine to the next is a part of that.
    """

    def __init__(
        self,
        kernels: Sequence[P],
        without: Callable[[Sequence[P], Sequence[P]], Measurement],
        step: Callable[[str], None],
        left_s: Callable[[], float] = lambda: math.inf,
        following_comparisons: int = 0,
        comparison_s: float = 0.0,
        proven: Collection[str] = (),
        usual_share: float = 1.0,
        times: ModelTimes = NO_TIMES,
        streams: int = 1,
    ) -> None:
        self.kept = tuple(kernels)
        self.dropped: dict[str, Drop] = {}
        self.comparisons = 0
        self._without = without
        self._step = step
        self._left_s = left_s
        self._following = following_comparisons
        self._longest_s = comparison_s
        self._model_us = math.inf
        self._proven = frozenset(proven)
        self._usual_share = usual_share
        self._times = times
        self._streams = streams
        self._groups = {name: at for at, names in enumerate(times.groups) for name in names}
        self._whole: Measurement | None = None

    def are_wrong(self) -> bool:
        """Time the model with all; True if it cannot be run with them, or computes wrongly.

        One alone is left to the last comparison, which shows the same.

        Raises:
            TimeIsUpError: there is no time for that.
        """
        if len(self.kept) < 2:
            return False
        if not self.has_time:
            raise TimeIsUpError
        self._whole = self._compared(self._in_order())
        return self._whole is None or not self._whole.is_correct

    def run(self) -> None:
        """Leave out what loses; what stays and what does not is in `kept` and `dropped`."""
        if len(self.kept) < 2:
            return
        losing = [kernel for kernel in self._in_order() if kernel.name in self._times.losses]
        if losing and len(losing) < len(self.kept):
            found = self._saving(losing)
            if found is not None and found.is_loss:
                self._drop_if_loss(losing, found)
        if len(self.kept) < 2:  # the last comparison shows what is left
            return
        group = self._in_order()
        whole = (self._whole if not self.dropped else None) or self._measured(group)
        if whole is None or not whole.counts:
            return
        self._model_us = self._streams * whole.latency_us
        if Saving.of(estimate_speedup(whole)).reaches(self._promise(group)):
            return
        # ONNX Runtime optimises the model without any kernel once more, so that what the whole
        # lacks may be no kernel's fault: nothing follows from it about a half
        for half in self._halves(group):
            self._examine(half, self._saving(half))
        if not self.dropped:
            self._examine_middle(group)

    def run_among(self, group: Collection[P]) -> None:
        """Leave out what loses of a group; the others are believed, and stay.

        Whether the model computes rightly with all is left to the last comparison.
        """
        members = [kernel for kernel in self._in_order() if kernel in group]
        found = self._measured(members) if members else None
        if found is None or not found.is_correct or not found.counts:
            return
        self._model_us = self._streams * found.latency_us
        self._examine(members, Saving.of(estimate_speedup(found)))

    def _in_order(self) -> list[P]:
        """Return all kernels, with kernels that lose for one reason side by side.

        The reason is a place in the graph where kernels stand beside each other, or a family's.
        """
        alike = sorted(self.kept, key=lambda k: (k.name in self._proven, k.kind, k.gain_us))
        place = {name: at for names in self._times.groups for at, name in enumerate(names)}
        first: dict[int | str, int] = {}
        for at, kernel in enumerate(alike):
            first.setdefault(self._group_of(kernel), at)
        return sorted(alike, key=lambda k: (first[self._group_of(k)], place.get(k.name, 0)))

    def _group_of(self, kernel: P) -> int | str:
        """Return the group of a kernel; its name where it is in none."""
        return self._groups.get(kernel.name, kernel.name)

    def _halves(self, group: Sequence[P]) -> tuple[Sequence[P], Sequence[P]]:
        """Return both halves of a group; the cut is between neighbours only if all are."""
        half = len(group) // 2
        cuts = [
            at
            for at in range(1, len(group))
            if self._group_of(group[at - 1]) != self._group_of(group[at])
        ]
        cut = min(cuts, key=lambda at: abs(at - half), default=half)
        return group[:cut], group[cut:]

    def _examine(self, group: Sequence[P], saving: Saving | None) -> None:
        """Leave out what loses in a group that does not keep its promise."""
        if saving is None or saving.reaches(self._promise(group)):
            return
        before = len(self.dropped)
        if len(group) > 1:
            self._examine_halves(group, saving)
        if len(self.dropped) == before and len(group) > 1 and saving.is_loss:
            self._examine_middle(group)
        if len(self.dropped) == before and (len(group) == 1 or saving.is_loss):
            self._drop_if_loss(group, saving)

    def _examine_halves(self, group: Sequence[P], saving: Saving) -> None:
        first, second = self._halves(group)
        of_first = self._saving(first)
        if of_first is None:
            return
        halves = [(first, of_first), (second, saving.less(of_first))]
        halves.sort(key=lambda half: half[1].middle - self._promise(half[0]))
        for half, its_saving in halves:
            doubtful = its_saving.is_doubtful(self._promise(half))
            self._examine(half, self._saving(half) if doubtful else its_saving)

    def _examine_middle(self, group: Sequence[P]) -> None:
        """Examine what is on both sides of the cut of a group that loses though no half does."""
        cut = len(self._halves(group)[0])
        middle = group[cut - max(1, cut // 2) : cut + max(1, (len(group) - cut) // 2)]
        before, after = group[cut - 1], group[cut]
        if len(middle) == len(group) or self._group_of(before) != self._group_of(after):
            return
        saving = self._saving(middle)
        if saving is not None and saving.is_loss:
            self._examine(middle, saving)

    def _drop_if_loss(self, group: Sequence[P], saving: Saving) -> None:
        """Drop a group whose loss shows twice; one that loses without any part that does, whole."""
        found = saving if saving.measured else self._saving(group)
        again = self._measure(group) if found is not None and found.is_loss else None
        estimate = estimate_speedup(again) if again is not None else None
        if estimate is None or not Saving.of(estimate).is_loss:
            return
        reason = f"the model is {1 / estimate.median:.3f}x as fast without it"
        for kernel in group:
            why = self._times.losses.get(kernel.name)
            drop = Drop(reason=f"{reason}: {why}" if why else reason, estimate=estimate)
            self.dropped[kernel.name] = drop
            self._step(f"dropped {kernel.name}: {drop.reason}")
        self.kept = tuple(kernel for kernel in self.kept if kernel not in group)

    def _saving(self, group: Sequence[P]) -> Saving | None:
        found = self._measure(group)
        return Saving.of(estimate_speedup(found)) if found is not None else None

    def _measure(self, group: Sequence[P]) -> Measurement | None:
        """Compare without a group, None if comparisons are used up or this one tells nothing."""
        found = self._measured(group)
        return found if found is not None and found.counts else None

    def _measured(self, group: Sequence[P]) -> Measurement | None:
        """Compare without a group, None if there is no time for it or it cannot be run."""
        try:
            return self._compared(group) if self.has_time else None
        except TimeIsUpError:
            return None

    def _compared(self, group: Sequence[P]) -> Measurement | None:
        """Compare without a group, None if the model cannot be run."""
        began_s = self._left_s()
        self.comparisons += 1
        try:
            return self._without(self.kept, group)
        except RunError:  # whether it can be run at all is seen in the end
            return None
        finally:
            if math.isfinite(began_s):
                self._longest_s = max(self._longest_s, began_s - self._left_s())

    @property
    def has_time(self) -> bool:
        """True if there is time for one more comparison."""
        needed_s = self._longest_s * (1 + self._following)
        return self.comparisons < MOST_COMPARISONS and self._left_s() > needed_s

    def _promise(self, group: Sequence[P]) -> float:
        """Return the gain expected of the kernels of a group together; losses count as zero."""
        gains = (
            self._times.saved_by(k, PROVEN if k.name in self._proven else self._usual_share)
            for k in group
        )
        return sum(max(0.0, gain_us) for gain_us in gains) / self._model_us
