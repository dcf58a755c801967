"""The interface of a kernel family: the seam between the tuner and the files beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from aoe.operators import OperatorKey
from aoe.schedule import Configuration, Parallel, Schedule, Space, Values
from aoe.target import Target
from aoe.workload import Workload

if TYPE_CHECKING:
    import halide as hl

Found = TypeVar("Found")
Plan = TypeVar("Plan")
OpenAxes = tuple[tuple[int, ...], ...]
UPDATE = ".update"
"""End of the name of the stage that is the update of a reduction."""


MOST_LANES = 16
"""Float32 elements of the widest vector register there is (AVX-512)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTarget:
    """Facts about the CPU that a family schedules by."""

    # float32 elements of one vector register (16 with AVX-512, 8 with AVX2, 4 with NEON).
    vector_lanes: int
    threads: int  # Threads the tuned model runs with
    l1_bytes: int = 32 << 10  # Data cache of one core
    l2_bytes: int = 1 << 20  # Second-level cache of one core
    # True if it multiplies pairs of bfloat16 and sums in float32 (AVX512-BF16).
    bf16_dot: bool = False
    bf16_tiles: bool = False  # True if it does so with matrix tiles (AMX)
    int8_dot: bool = False  # True if it sums four products of 8 bits in 32 (AVX-512 VNNI)
    int8_tiles: bool = False  # True if it does so with matrix tiles (AMX)

    @property
    def registers(self) -> int:
        """Vector registers: AVX-512, AVX2, NEON. Source: the instruction sets."""
        return {16: 32, 8: 16, 4: 32}.get(self.vector_lanes, 16)

    def idle_ratio(self, tasks: float) -> float:
        """Return the time of equal tasks over the time if all threads shared the last one."""
        return -(-tasks // self.threads) * self.threads / tasks

    @classmethod
    def of(cls, target: Target) -> KernelTarget:
        """Return the facts about `target` that a family uses."""
        return cls(
            vector_lanes=target.vector_lanes,
            threads=target.core_num,
            l1_bytes=target.l1_bytes,
            l2_bytes=target.l2_bytes,
            bf16_dot=target.bf16_dot is not None,
            bf16_tiles=target.bf16_tiles is not None,
            int8_dot=target.int8_dot is not None,
            int8_tiles=target.int8_tiles is not None,
        )


@dataclass(frozen=True, slots=True)
class Support:
    """Answer of a family to a workload: it computes it, or the reason why it does not."""

    reason: str = ""  # Empty if the workload is supported

    def __bool__(self) -> bool:
        return not self.reason


SUPPORTED = Support()


def support_of(found: object) -> Support:
    """Return `found` if it is a refusal, else that the workload is supported."""
    return found if isinstance(found, Support) else SUPPORTED


def supported(workload: Workload, found: Found | Support) -> Found:
    """Return the plan of a workload that a family has said it computes.

    Raises:
        ValueError: it is a refusal.
    """
    if isinstance(found, Support):
        raise ValueError(f"{workload.op_type}: not supported: {found.reason}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedInput:
    """Rearrangement of a constant input, made once when the kernel is created."""

    output: hl.Func  # Function of the packed values, scheduled
    argument: hl.ImageParam  # The input as the model has it
    argument_extents: tuple[int, ...]  # Its extents, innermost first; dense
    dtype: str = "float32"  # Element type of the packed values
    # Number of that input; None for the one whose place the packed values take.
    source: int | None = None

    @property
    def read_dtype(self) -> str:
        """Element type of the input, NumPy spelling: the glue binds as many bytes as it has."""
        kind = self.argument.type()
        prefix = "float" if kind.is_float() else "uint" if kind.is_uint() else "int"
        return f"{prefix}{kind.bits()}"


class Role(StrEnum):
    """Meaning of a dimension of a tensor, for kernels of open extents.

    By the number of rows the block of a kernel is chosen. Batches, and what is summed up to make a
    result, may be any number for each block.
    """

    BATCH = "batch"
    ROWS = "rows"
    SUMMED = "summed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenExtents:
    """Interface of a family whose kernels read extents at run time."""

    rows: tuple[int, ...]  # Of the workloads blocks are searched for, the largest first
    # How many rows a schedule for open extents needs, as many as those or fewer.
    least_rows: Callable[[Workload, Schedule], int]
    # What dimensions of the inputs and the result of a workload count; None where extents of the
    # workload cannot be open.
    roles: Callable[[Workload], tuple[tuple[Role, ...], ...] | None]
    # The schedule for open extents of a workload, given one for its fixed shape.
    schedule: Callable[[Workload, Schedule], Schedule]
    # The workload that reads an input, given by number, with its last two dimensions in the other
    # order; None where the family has none.
    turned: Callable[[Workload, int], Workload | None]


@dataclass(frozen=True, slots=True)
class OpenDimension:
    """A dimension of a buffer of a kernel for open extents."""

    source: int  # Dimension of the tensor in the workload, below 0 where the tensor has none there
    is_open: bool  # True if the kernel reads its extent from the buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferView:
    """Strides of a buffer in a tensor that is stored in another order."""

    tensor: int  # Number of the input; that behind the last one is the result
    # Elements between two neighbours along each dimension, innermost first.
    strides: tuple[int, ...]
    offset: int = 0  # Elements of the tensor in front of the first one


@dataclass(frozen=True, slots=True, kw_only=True)
class Indices:
    """Indices in an input, which the glue checks before a kernel reads where they say.

    A call with an index below `-length`, or above `length - 1`, fails as it does in ONNX Runtime.
    """

    tensor: int  # Number of the input
    length: int  # Elements they count, from either end
    offset: int = 0  # Elements of the tensor in front of the first one
    # Rows of indices, and indices of a row; of all elements one row.
    counts: tuple[int, int]
    strides: tuple[int, int] = (0, 1)  # Elements between two rows, and between two of a row


def all_indices(tensor: int, size: int, length: int) -> Indices:
    """Return the elements of a whole input as indices that count `length` elements."""
    return Indices(tensor=tensor, length=length, counts=(1, size))


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedTile:
    """A schedule with register tiles of one size."""

    schedule: Schedule  # The schedule
    size: int  # Of a tile, along the extent tiles cut
    cost: float  # Of a tile, in any unit
    rows: int = 1  # Rows of a tile, where these are cut into tiles, too
    rest: float = 0.0  # What rows of a tile cost besides, for each element of the extent


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledExtent:
    """An open extent that register tiles cut, of several sizes: a call takes the cheapest."""

    argument: int | None  # Number of the buffer that has it; None for the result
    dimension: int  # Of the buffer, counted from the innermost
    # The schedules in such tiles, given one.
    tiles: Callable[[Schedule, KernelTarget], Iterable[SizedTile]]
    # Dimension of the result that is cut into `SizedTile.rows`, counted likewise; None for none.
    rows_dimension: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """An algorithm in Halide, not scheduled yet."""

    output: hl.Func  # Function of the result
    # Functions by the name schedule steps use, the result included; the update definition of a
    # reduction is a stage of its own, its name ends in `UPDATE`.
    stages: Mapping[str, Any]
    # Buffers read, in the order of `Workload.inputs`; behind them, what else is made of those
    # inputs once.
    arguments: tuple[hl.ImageParam, ...]
    # Extents of each argument, innermost first; buffers without a view are dense.
    argument_extents: tuple[tuple[int, ...], ...]
    output_extents: tuple[int, ...]  # Extents of the result, innermost first
    # Loop names and extents of each stage before any step, innermost first.
    loops: Mapping[str, tuple[tuple[str, int], ...]]
    # For arguments that are made of an input, by their number, what makes them; `arguments` and
    # `argument_extents` have the packed form.
    packings: Mapping[int, PackedInput] = field(default_factory=dict)
    # Stages that may be computed past what is read of them: they read no argument outside its
    # bounds wherever they are.
    padded: frozenset[str] = frozenset()
    # What the glue refuses if it is outside of what it counts.
    indexed: tuple[Indices, ...] = ()
    # By stage, loops whose iterations read what those before them have made, where Halide is not
    # asked to see that: they are never shared out nor made vectors.
    in_order: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # For loops over open dimensions of the result, of which number their extents are multiples in
    # every call.
    multiples: Mapping[str, int] = field(default_factory=dict)
    # What register tiles of several sizes cut where it is open; None where there is one size.
    tiled: TiledExtent | None = None
    # Of each argument and of the result, innermost first, where extents are open; all strides but
    # the innermost are those of the buffers then.
    open_dimensions: tuple[tuple[OpenDimension, ...], ...] = ()
    # For each argument, then the result, and each dimension of its buffer, the open axes of the
    # tensor whose extents it is multiplied by; empty where shapes are fixed.
    open_axes: tuple[OpenAxes, ...] = ()
    # By the number of an argument, that behind the last one for the result, where its elements lie;
    # arguments behind the inputs may be further views of these.
    views: Mapping[int, BufferView] = field(default_factory=dict)


class KernelFamily(Protocol):
    """One kind of kernel: what it computes, and how it may be scheduled."""

    @property
    def name(self) -> str:
        """`Workload.op_type` of its workloads; names their bank file."""

    @property
    def anchors(self) -> frozenset[OperatorKey]:
        """(domain, op_type) of the operators it is built around; empty if any may start it."""

    def supports(self, workload: Workload) -> Support:
        """Return the reason why the family does not compute `workload`, if there is one."""

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return an algorithm of a supported workload, without a schedule.

        Args:
            workload: What to compute.
            algorithm: Which one, for families that have several (`Schedule.algorithm`).

        Raises:
            ValueError: the family has no algorithm of that name.
        """

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return the configurations worth trying, first guesses best first."""

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps a configuration of `space(workload, target)` stands for."""


class PlannedFamily(ABC, Generic[Plan]):
    """A family that reads a workload into a plan, from which it makes everything else."""

    name: str  # See `KernelFamily`
    anchors: frozenset[OperatorKey] = frozenset()  # See `KernelFamily`

    @abstractmethod
    def plan(self, workload: Workload) -> Plan | Support:
        """Return the plan of `workload`, or the reason why the family does not compute it."""

    @abstractmethod
    def pipeline_of(self, plan: Plan, algorithm: str) -> Pipeline:
        """Return an algorithm without a schedule; "" is the default one."""

    @abstractmethod
    def space_of(self, plan: Plan, target: KernelTarget) -> Space:
        """Return the configurations worth trying, first guesses best first."""

    @abstractmethod
    def schedule_of(self, plan: Plan, values: Values, target: KernelTarget) -> Schedule:
        """Return the steps a configuration stands for, for several threads."""

    def supports(self, workload: Workload) -> Support:
        """Return the reason why the family has no plan for `workload`, if there is one."""
        return support_of(self.plan(workload))

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return an algorithm of a supported workload, without a schedule."""
        return self.pipeline_of(supported(workload, self.plan(workload)), algorithm)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return the configurations worth trying, first guesses best first."""
        return self.space_of(supported(workload, self.plan(workload)), target)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps a configuration stands for.

        Steps that share work out are left out where there are no threads to share it.
        """
        plan = supported(workload, self.plan(workload))
        made = self.schedule_of(plan, configuration, target)
        if target.threads > 1:
            return made
        alone = tuple(step for step in made.steps if not isinstance(step, Parallel))
        return replace(made, steps=alone)
