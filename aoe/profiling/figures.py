"""Figures of a profile: of each operator, of each type of operator, of the whole model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aoe.graph.fusing import StopReason
from aoe.operators import Shape
from aoe.ort.profile import NodeRun
from aoe.profiling.counters import HardwareCounters
from aoe.profiling.peak import MachinePeak, NodeWork, OperatorBound


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProfile:
    """One node of the graph that really runs."""

    name: str  # Of the node
    # Nodes of the user's model it computes, in the order of the model; none for a node ONNX Runtime
    # adds, which only changes a layout.
    op_names: tuple[str, ...]
    op_type: str  # Of the node, with its domain where that is not ONNX's own
    op_types: tuple[str, ...]  # Of the nodes of the user's model, in the order of `op_names`
    reads: tuple[str, ...] = ()  # Names of the nodes whose results it reads
    # Of its inputs in their order, None where a shape may differ from run to run.
    input_shapes: tuple[Shape | None, ...] = ()
    output_shapes: tuple[Shape | None, ...] = ()  # The same of its results
    dtype: str = ""  # Element type of its first result, NumPy spelling; empty where it is not known
    layout: str = "plain"  # `plain`, `NCHW16c`, or `plain -> NCHW16c` where it changes it
    calls: int = 1  # How often it runs in one run of the model
    median_us: float  # Time in a run of the model, profiler on, operands as the model leaves them
    min_us: float  # The shortest of these times
    work: NodeWork | None = None  # What it has to do; None where a shape is not proven
    # The time the machine needs for that at its best; None without `work`.
    roofline_us: float | None = None
    bound: OperatorBound = OperatorBound.UNKNOWN  # What that time is made of
    # Time of the node alone, operands in the caches; None where it was not measured.
    warm_us: float | None = None
    # Median time in a run of the model, by number of threads.
    us_by_threads: Mapping[int, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The types of the user's nodes it computes, or its own: what summaries go by."""
        return " + ".join(self.op_types) or self.op_type

    @property
    def flops(self) -> int | None:
        """Operations by the definition of what it computes; a multiply-add is two."""
        return None if self.work is None else self.work.flops

    @property
    def bytes(self) -> int | None:
        """Bytes read and written, each tensor counted once."""
        return None if self.work is None else self.work.weight_bytes + self.work.activation_bytes

    @property
    def lost_us(self) -> float | None:
        """Time over the roofline, 0 where it is at or below it; None without a roofline."""
        if self.roofline_us is None:
            return None
        return max(0.0, self.median_us - self.roofline_us)

    @property
    def peak_share(self) -> float | None:
        """Roofline time over time; above 1 where a kernel does less than the definition says."""
        if self.roofline_us is None or self.median_us <= 0:
            return None
        return self.roofline_us / self.median_us

    @property
    def gflops_per_s(self) -> float | None:
        """Operations per second in billions."""
        return _per_us(self.flops, self.median_us)

    @property
    def gbytes_per_s(self) -> float | None:
        """Bytes per second in billions."""
        return _per_us(self.bytes, self.median_us)

    @property
    def best_threads(self) -> int | None:
        """The number of threads it was fastest with, of equals the least; None if one was tried."""
        return best_threads(self.us_by_threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSummary:
    """All operators of one kind, times summed up."""

    kind: str  # See `OperatorProfile.kind`
    operators: int  # How many there are
    median_us: float  # Time of all of them
    roofline_us: float  # Of those that have one
    lost_us: float  # The same
    flops: int  # The same
    bytes: int  # The same


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionLimit:
    """One fusion AOE's classes allow in a model."""

    fusion_class: str  # Name of the class
    op_names: tuple[str, ...]  # Nodes it takes together, in their order
    op_types: tuple[str, ...]  # Their types
    through_cache: str  # Node among them that joins through the cache; empty if none does
    stop: StopReason  # Why it takes no more
    stopped_at: str  # Node that would have been next; empty where there is no one node
    stopped_type: str  # Its type
    without_limits: int  # How many nodes it had under `--tune_optimization_level O1`
    runs_as: int  # How many operators compute its nodes here; 0 where the model was not run
    goes_on_here: bool  # True if one operator computes the last of them and the node behind here
    median_us: float  # Time of those operators


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledModel:
    """A model and where its time goes."""

    model: str  # File as the user named it
    soc_version: str  # Target
    cpu_model: str  # Marketing name
    threads: int  # Threads of the times of operators
    runs: int  # Runs that count
    model_us: float  # Median time of a whole run, profiler on
    model_min_us: float  # The shortest
    # Median time of a whole run by number of threads.
    model_us_by_threads: Mapping[int, float] = field(default_factory=dict)
    peak: MachinePeak  # What the machine does at its best with those threads
    operators: tuple[OperatorProfile, ...]  # In the order in which they run
    timeline: tuple[NodeRun, ...] = ()  # One run, the one whose time is the median
    # Hardware counters of the runs, or why there are none.
    counters: HardwareCounters = field(default_factory=HardwareCounters)
    versions: Mapping[str, str] = field(default_factory=dict)  # Of aoe, onnxruntime and others
    # What AOE's classes of fusions make of the model; None if that was not asked for.
    fusion: tuple[FusionLimit, ...] | None = None
    # Why the figures are not to be believed; empty if nothing speaks against them.
    caveats: tuple[str, ...] = ()

    @property
    def operators_us(self) -> float:
        """Time of all operators."""
        return sum(operator.median_us for operator in self.operators)

    @property
    def lost_us(self) -> float:
        """Time of all operators over their rooflines."""
        return sum(operator.lost_us or 0.0 for operator in self.operators)

    @property
    def best_threads(self) -> int | None:
        """The number of threads the model was fastest with; None if one was tried."""
        return best_threads(self.model_us_by_threads)

    def by_lost_time(self) -> tuple[OperatorProfile, ...]:
        """Return the operators by lost time, largest first; by their time without a roofline."""

        def rank(operator: OperatorProfile) -> tuple[float, str]:
            lost = operator.lost_us
            return (-(operator.median_us if lost is None else lost), operator.name)

        return tuple(sorted(self.operators, key=rank))

    def kinds(self) -> tuple[KindSummary, ...]:
        """Return a summary for each kind of operator, the one that takes longest first."""
        alike: dict[str, list[OperatorProfile]] = {}
        for operator in self.operators:
            alike.setdefault(operator.kind, []).append(operator)
        found = [_summary(kind, operators) for kind, operators in alike.items()]
        return tuple(sorted(found, key=lambda summary: (-summary.median_us, summary.kind)))


def best_threads(us_by_threads: Mapping[int, float]) -> int | None:
    """Return the number of threads with the shortest time, None if fewer than two were tried."""
    if len(us_by_threads) < 2:
        return None
    return min(us_by_threads, key=lambda threads: (us_by_threads[threads], threads))


def _summary(kind: str, operators: list[OperatorProfile]) -> KindSummary:
    return KindSummary(
        kind=kind,
        operators=len(operators),
        median_us=sum(operator.median_us for operator in operators),
        roofline_us=sum(operator.roofline_us or 0.0 for operator in operators),
        lost_us=sum(operator.lost_us or 0.0 for operator in operators),
        flops=sum(operator.flops or 0 for operator in operators),
        bytes=sum(operator.bytes or 0 for operator in operators),
    )


def _per_us(amount: int | None, time_us: float) -> float | None:
    """Return billions per second, None where there is no amount or no time."""
    return None if amount is None or time_us <= 0 else amount / time_us / 1e3
