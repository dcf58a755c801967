"""Schedules as data: typed steps that can be printed, hashed, stored as JSON and replayed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from aoebank import plural, step_words


class Tail(StrEnum):
    """Treatment of the iterations a split leaves over when the factor does not divide."""

    GUARD = "guard"
    SHIFT_INWARDS = "shift_inwards"
    ROUND_UP = "round_up"
    """They are computed in full: only where a stage may go past what is read of it."""
    AUTO = "auto"


class Memory(StrEnum):
    """Memory of the values of a stage."""

    STACK = "stack"
    HEAP = "heap"


# Steps are built by position, as their calls in Halide are: the order of the fields is the order
# of the arguments there and of the JSON here.


@dataclass(frozen=True, slots=True)
class Split:
    """Split the loop `var` of `stage` into `outer` and `inner`, `factor` iterations each."""

    stage: str
    var: str
    outer: str
    inner: str
    factor: int
    tail: Tail = Tail.AUTO

    def __post_init__(self) -> None:
        _check_names(self.stage, self.var, self.outer, self.inner)
        _check_count("factor", self.factor)
        if self.tail not in tuple(Tail):
            raise ValueError(f"tail: unknown (got {self.tail!r}, expected {_words(Tail)})")


@dataclass(frozen=True, slots=True)
class Fuse:
    """Make one loop `fused` of the loops `outer` and `inner` of `stage`."""

    stage: str
    outer: str
    inner: str
    fused: str

    def __post_init__(self) -> None:
        _check_names(self.stage, self.outer, self.inner, self.fused)


@dataclass(frozen=True, slots=True)
class Reorder:
    """Nest the loops of `stage` in `order`, innermost first."""

    stage: str
    order: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.order, tuple) or len(self.order) < 2:
            raise ValueError(f"order: must name two loops or more (got {self.order!r})")
        _check_names(self.stage, *self.order)
        if len(set(self.order)) < len(self.order):
            raise ValueError(f"order: names a loop twice (got {self.order!r})")


@dataclass(frozen=True, slots=True)
class Vectorize:
    """Compute `factor` iterations of the loop `var` of `stage` in one vector."""

    stage: str
    var: str
    factor: int

    def __post_init__(self) -> None:
        _check_names(self.stage, self.var)
        _check_count("factor", self.factor)


@dataclass(frozen=True, slots=True)
class Unroll:
    """Write out `factor` iterations of the loop `var` of `stage`."""

    stage: str
    var: str
    factor: int

    def __post_init__(self) -> None:
        _check_names(self.stage, self.var)
        _check_count("factor", self.factor)


@dataclass(frozen=True, slots=True)
class Parallel:
    """Run the loop `var` of `stage` on all threads, `task_size` iterations a task if given."""

    stage: str
    var: str
    task_size: int | None = None

    def __post_init__(self) -> None:
        _check_names(self.stage, self.var)
        if self.task_size is not None:
            _check_count("task_size", self.task_size)


@dataclass(frozen=True, slots=True)
class ComputeAt:
    """Compute `stage` inside the loop `var` of `at_stage`, as much as that iteration needs."""

    stage: str
    at_stage: str
    var: str

    def __post_init__(self) -> None:
        _check_names(self.stage, self.at_stage, self.var)


@dataclass(frozen=True, slots=True)
class ComputeRoot:
    """Compute `stage` completely before anything that uses it."""

    stage: str

    def __post_init__(self) -> None:
        _check_names(self.stage)


@dataclass(frozen=True, slots=True)
class StoreIn:
    """Keep the values of `stage` on the stack or on the heap."""

    stage: str
    memory: Memory

    def __post_init__(self) -> None:
        _check_names(self.stage)
        if self.memory not in tuple(Memory):
            raise ValueError(f"memory: unknown (got {self.memory!r}, expected {_words(Memory)})")


@dataclass(frozen=True, slots=True)
class Atomic:
    """Let a loop over what `stage` sums up be vectorized, so that pairs become dot products."""

    stage: str

    def __post_init__(self) -> None:
        _check_names(self.stage)


@dataclass(frozen=True, slots=True)
class NeverPartition:
    """Keep the loop `var` of `stage` in one piece, its last, shifted iteration among the others.

    Halide otherwise writes what it computes down once more, for that iteration alone.
    """

    stage: str
    var: str

    def __post_init__(self) -> None:
        _check_names(self.stage, self.var)


Step = (
    Split
    | Fuse
    | Reorder
    | Vectorize
    | Unroll
    | Parallel
    | ComputeAt
    | ComputeRoot
    | StoreIn
    | Atomic
    | NeverPartition
)

STEP_KINDS: dict[str, type[Step]] = {
    "split": Split,
    "fuse": Fuse,
    "reorder": Reorder,
    "vectorize": Vectorize,
    "unroll": Unroll,
    "parallel": Parallel,
    "compute_at": ComputeAt,
    "compute_root": ComputeRoot,
    "store_in": StoreIn,
    "atomic": Atomic,
    "never_partition": NeverPartition,
}
_WORD_OF_KIND = {kind: word for word, kind in STEP_KINDS.items()}
_ALGORITHM = "algorithm"


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in the order in which they are applied to an unscheduled pipeline.

    >>> print(Schedule((Split("y", "x", "xo", "xi", 16), Vectorize("y", "xi", 16))))
    y: split x -> xo, xi by 16
    y: vectorize xi by 16
    """

    steps: tuple[Step, ...] = ()  # What is done to its loops
    # Which of the algorithms of a family is scheduled; empty where there is one.
    algorithm: str = ""

    def __str__(self) -> str:
        first = [f"algorithm {self.algorithm}"] if self.algorithm else []
        return "\n".join([*first, *(step_text(step) for step in self.steps)])


def step_text(step: Step) -> str:
    """Return a step as one short line that starts with its stage."""
    return step_words(_step_to_json(step))


def schedule_to_json(schedule: Schedule) -> list[list[Any]]:
    """Return a schedule as lists, one a step: its kind, then its fields in their order.

    A named algorithm comes first, as `["algorithm", name]`.
    """
    chosen = [[_ALGORITHM, schedule.algorithm]] if schedule.algorithm else []
    return chosen + [_step_to_json(step) for step in schedule.steps]


def _step_to_json(step: Step) -> list[Any]:
    return [_WORD_OF_KIND[type(step)], *(_plain(getattr(step, part.name)) for part in fields(step))]


def schedule_from_json(value: object) -> Schedule:
    """Return the schedule that `schedule_to_json` gave as `value`.

    Raises:
        ValueError: with the place, if `value` is no list of known steps with legal fields.
    """
    if not isinstance(value, list):
        raise ValueError(f"schedule: must be a list of steps (got {type(value).__name__})")
    algorithm = ""
    if value and isinstance(value[0], list) and value[0][:1] == [_ALGORITHM]:
        algorithm = _algorithm_from_json(value[0])
    first = 1 if algorithm else 0
    steps = enumerate(value[first:], start=first)
    return Schedule(
        tuple(_step_from_json(f"schedule[{at}]", step) for at, step in steps), algorithm=algorithm
    )


def _algorithm_from_json(value: list[object]) -> str:
    match value:
        case [_, str(name)] if name:
            return name
    raise ValueError(f"schedule[0]: algorithm takes a name (got {value[1:]!r})")


def _step_from_json(where: str, value: object) -> Step:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where}: must be a list that starts with a step kind (got {value!r})")
    word, *arguments = value
    kind = STEP_KINDS.get(word) if isinstance(word, str) else None
    if kind is None:
        raise ValueError(f"{where}: unknown step (got {word!r}, expected {', '.join(STEP_KINDS)})")
    if len(arguments) != len(fields(kind)):
        names = ", ".join(part.name for part in fields(kind))
        raise ValueError(f"{where}: {word} takes {names} (got {plural(len(arguments), 'value')})")
    typed: dict[str, Any] = {
        part.name: tuple(argument) if isinstance(argument, list) else argument
        for part, argument in zip(fields(kind), arguments, strict=True)
    }
    try:
        if kind is Split:
            typed["tail"] = Tail(typed["tail"])
        elif kind is StoreIn:
            typed["memory"] = Memory(typed["memory"])
        return kind(**typed)
    except ValueError as error:
        raise ValueError(f"{where}: {word}: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, StrEnum) else value


def _words(closed_set: type[StrEnum]) -> str:
    return "|".join(closed_set)


def _check_names(*names: object) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a stage or a loop must have a name (got {name!r})")


def _check_count(what: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{what}: must be an integer >= 1 (got {count!r})")
