"""Two profiles of one model: what became of each operator, and of each kind.

The same nodes of the user's model may be cut into operators in another way before and after, so
what is compared are the smallest sets of nodes that are whole operators on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aoe.profiling.figures import OperatorProfile, ProfiledModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOperators:
    """The operators of both profiles that compute the same nodes of the user's model."""

    op_names: tuple[str, ...]  # Those nodes; of operators that compute none, their own names
    kind: str  # The types of the nodes
    # Operators of the first profile; none where only the second one has them.
    before: tuple[OperatorProfile, ...]
    after: tuple[OperatorProfile, ...]  # Operators of the second profile

    @property
    def before_us(self) -> float:
        """Time of all of them in the first profile."""
        return sum(operator.median_us for operator in self.before)

    @property
    def after_us(self) -> float:
        """Time of all of them in the second profile."""
        return sum(operator.median_us for operator in self.after)

    @property
    def saved_us(self) -> float:
        """Time the second profile takes less; negative where it takes more."""
        return self.before_us - self.after_us

    @property
    def speedup(self) -> float | None:
        """Before over after, above 1 where it became faster; None where one side has nothing."""
        return speedup(self.before_us, self.after_us) if self.before and self.after else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedKind:
    """All operators of one kind in both profiles, times summed up."""

    kind: str
    places: int
    before_us: float
    after_us: float

    @property
    def speedup(self) -> float | None:
        """Before over after, above 1 where it became faster; None where one side takes no time."""
        return speedup(self.before_us, self.after_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedProfiles:
    """Two profiles side by side."""

    before: ProfiledModel  # The first
    after: ProfiledModel  # The second
    operators: tuple[ComparedOperators, ...]  # What has changed most first
    # Why the two are not to be compared; empty if nothing speaks against it.
    caveats: tuple[str, ...] = ()

    @property
    def speedup(self) -> float | None:
        """Of whole runs, before over after."""
        return speedup(self.before.model_us, self.after.model_us)

    def kinds(self) -> tuple[ComparedKind, ...]:
        """Return a summary for each kind, what has changed most first."""
        alike: dict[str, list[ComparedOperators]] = {}
        for compared in self.operators:
            alike.setdefault(compared.kind, []).append(compared)
        found = [
            ComparedKind(
                kind=kind,
                places=len(places),
                before_us=sum(one.before_us for one in places),
                after_us=sum(one.after_us for one in places),
            )
            for kind, places in alike.items()
        ]
        return tuple(sorted(found, key=lambda one: (-abs(one.before_us - one.after_us), one.kind)))


def speedup(before_us: float, after_us: float) -> float | None:
    """Return before over after, None where either is no time."""
    return before_us / after_us if before_us > 0 and after_us > 0 else None


def compare_profiles(before: ProfiledModel, after: ProfiledModel) -> ComparedProfiles:
    """Return each operator of `before` beside its counterpart in `after`."""
    groups = _Groups()
    for operator in (*before.operators, *after.operators):
        groups.join(_nodes(operator))
    sides: dict[str, tuple[list[OperatorProfile], list[OperatorProfile]]] = {}
    for side, profile in enumerate((before, after)):
        for operator in profile.operators:
            root = groups.root(next(_nodes(operator)))
            sides.setdefault(root, ([], []))[side].append(operator)
    operators = [_compared(*pair) for pair in sides.values()]
    operators.sort(key=lambda one: (-abs(one.saved_us), one.op_names))
    return ComparedProfiles(
        before=before,
        after=after,
        operators=tuple(operators),
        caveats=tuple(_caveats(before, after)),
    )


def _nodes(operator: OperatorProfile) -> Iterator[str]:
    """Yield the identities of an operator on both sides."""
    if operator.op_names:
        yield from operator.op_names
    else:
        yield f"\0{operator.name}"  # a node of ONNX Runtime's, never one of the user's


def _compared(
    before: Sequence[OperatorProfile], after: Sequence[OperatorProfile]
) -> ComparedOperators:
    types = {
        name: op_type
        for operator in (*before, *after)
        for name, op_type in zip(operator.op_names, operator.op_types, strict=True)
    }
    own = (*before, *after)[0]
    return ComparedOperators(
        op_names=tuple(types) or (own.name,),
        kind=" + ".join(types.values()) or own.op_type,
        before=tuple(before),
        after=tuple(after),
    )


def _caveats(before: ProfiledModel, after: ProfiledModel) -> Iterator[str]:
    for word, one, other in (
        ("CPUs", before.cpu_model, after.cpu_model),
        ("numbers of threads", before.threads, after.threads),
        (
            "versions of onnxruntime",
            before.versions.get("onnxruntime"),
            after.versions.get("onnxruntime"),
        ),
    ):
        if one != other:
            yield f"measured with different {word}: {one} and {other}"
    for profile in (before, after):
        for caveat in profile.caveats:
            yield f"{profile.model}: {caveat}"
    if not _shared(before.operators, after.operators):
        yield "no node of one model is in the other"


def _shared(one: Iterable[OperatorProfile], other: Iterable[OperatorProfile]) -> set[str]:
    names = {name for operator in one for name in operator.op_names}
    return names & {name for operator in other for name in operator.op_names}


class _Groups:
    """Disjoint sets of names."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def root(self, name: str) -> str:
        above = self._above.setdefault(name, name)
        while above != self._above[above]:
            above = self._above[above]
        self._above[name] = above
        return above

    def join(self, names: Iterable[str]) -> None:
        """Put names into one set, and whatever is in a set with one of them."""
        first: str | None = None
        for name in names:
            root = self.root(name)
            if first is None:
                first = root
            self._above[root] = first
