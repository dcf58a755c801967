"""A profile as text: operators by lost time, kinds of operators, threads, fusion limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.profiling.document import SCHEMA, profile_to_json
from aoe.profiling.figures import FusionLimit, OperatorProfile, ProfiledModel
from aoe.report.quantities import time_text
from aoebank import plural

if TYPE_CHECKING:
    from aoebank import AoebankError, Text

_MOST_ROWS = 25
_MOST_LIMITS = 40
_WIDE = 130
"""Characters of a terminal that has room for shapes."""
_CLASSES = {
    "conv_elementwise": "a convolution and at most 3 element-wise operators",
    "elementwise_chain": "at most 5 element-wise operators",
    "reduction_elementwise": "a reduction and at most 4 element-wise operators",
    "segment_elementwise": "a segment operator and at most 4 element-wise operators",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """A profile, and what was written with it.

    Attributes:
        written: Files.
        is_dry_run: True if they were not written.
    """

    profile: ProfiledModel
    written: tuple[Path, ...] = ()
    is_dry_run: bool = False
    schema: str = SCHEMA
    error: AoebankError | None = None
    exit_code: int = 0

    def document(self) -> Mapping[str, object]:
        """Return every figure; see `docs/profile.md`."""
        files = [] if self.is_dry_run else [str(file) for file in self.written]
        return {**profile_to_json(self.profile), "written": files}

    def write(self, text: Text) -> None:
        """Write the whole, the operators that lose most, the kinds, and the fusion limits."""
        for line in _head(self.profile):
            text.line(line)
        _write_operators(text, self.profile)
        _write_kinds(text, self.profile)
        if self.profile.fusion is not None:
            _write_fusion(text, self.profile.fusion)
        write_files(text, self.written, is_dry_run=self.is_dry_run)


def write_files(text: Text, files: Sequence[Path], *, is_dry_run: bool) -> None:
    """Say what was written."""
    for file in files:
        text.line(f"{'would write' if is_dry_run else 'wrote'} {file}")


# ---- the whole model ----


def _head(profile: ProfiledModel) -> Iterator[str]:
    yield (
        f"{profile.model}: {time_text(profile.model_us)} a run (shortest "
        f"{time_text(profile.model_min_us)}, {profile.runs} runs under the profiler, "
        f"{plural(profile.threads, 'thread')}) on {profile.cpu_model}"
    )
    lost = profile.lost_us / profile.operators_us if profile.operators_us else 0.0
    yield (
        f"operators {time_text(profile.operators_us)}, of which {time_text(profile.lost_us)} "
        f"({lost:.0%}) are lost: more than the machine needs at its best"
    )
    peak = profile.peak
    levels = ", ".join(f"{level.bytes_per_us / 1e3:.0f} ({level.name})" for level in peak.levels)
    yield f"at its best: {peak.flops_per_us / 1e3:.0f} GF/s in float32; GB/s {levels}"
    if profile.best_threads is not None:
        times = ", ".join(
            f"{threads}: {time_text(us)}" for threads, us in profile.model_us_by_threads.items()
        )
        yield f"by threads {times}; {profile.best_threads} is fastest"
    yield _counters(profile)


def _counters(profile: ProfiledModel) -> str:
    counters = profile.counters
    if counters.reason:
        return f"no hardware counters: {counters.reason}"
    counts = ", ".join(f"{name} {count:.3g}" for name, count in counters.per_run.items())
    ratio = counters.instructions_per_cycle
    per_cycle = f"; {ratio:.2f} instructions per cycle" if ratio is not None else ""
    return f"hardware counters of a run: {counts}{per_cycle}"


# ---- operators ----


def title_of(operator: OperatorProfile) -> str:
    """Return the title of an operator: its first node, and the number of further ones.

    >>> from aoe.profiling.figures import OperatorProfile
    >>> names = {"name": "r_nchwc", "op_type": "Conv", "op_types": ("Conv", "Relu")}
    >>> title_of(OperatorProfile(op_names=("conv", "relu"), median_us=1.0, min_us=1.0, **names))
    'conv +1'
    """
    if not operator.op_names:
        return operator.name
    more = len(operator.op_names) - 1
    return f"{operator.op_names[0]} +{more}" if more else operator.op_names[0]


def result_text(operator: OperatorProfile) -> str:
    """Return type, shape and layout of the first result of an operator."""
    shape = operator.output_shapes[0] if operator.output_shapes else None
    extents = "?" if shape is None else "x".join(map(str, shape)) or "scalar"
    layout = "" if operator.layout == "plain" else f" {operator.layout}"
    return f"{operator.dtype} {extents}{layout}".strip()


def figure(value: float | None, form: str) -> str:
    """Return a figure as text, a dash where there is none."""
    return "-" if value is None else format(value, form)


def _write_operators(text: Text, profile: ProfiledModel) -> None:
    operators = profile.by_lost_time()
    text.line()
    text.line("operators, by lost time:")
    has_room = text.width is None or text.width >= _WIDE
    has_warm = any(operator.warm_us is not None for operator in operators)
    has_threads = profile.best_threads is not None
    columns = [
        "operator",
        "computes",
        *["result"] * has_room,
        "us",
        "lost us",
        "of peak",
        "GF/s",
        "GB/s",
        "bound by",
    ]
    columns += ["warm us"] * has_warm + ["threads"] * has_threads
    rows = []
    for operator in operators[:_MOST_ROWS]:
        row = [
            title_of(operator),
            operator.kind,
            *[result_text(operator)] * has_room,
            f"{operator.median_us:.1f}",
            figure(operator.lost_us, ".1f"),
            figure(operator.peak_share, ".0%"),
            figure(operator.gflops_per_s, ".1f"),
            figure(operator.gbytes_per_s, ".1f"),
            operator.bound.value if operator.work is not None else "-",
        ]
        row += [figure(operator.warm_us, ".1f")] * has_warm
        row += [figure(operator.best_threads, "d")] * has_threads
        rows.append(row)
    kinds = "n-" + "-" * has_room + "rrrrr-" + "r" * (has_warm + has_threads)
    text.table(columns, rows, kinds)
    if len(operators) > _MOST_ROWS:
        text.line((f"{len(operators) - _MOST_ROWS} more with --json", "dim"))


def _write_kinds(text: Text, profile: ProfiledModel) -> None:
    total = profile.operators_us or 1.0
    text.line()
    text.line("kinds, by time:")
    text.table(
        ["kind", "operators", "us", "share", "lost us", "GF/s"],
        [
            [
                summary.kind,
                str(summary.operators),
                f"{summary.median_us:.1f}",
                f"{summary.median_us / total:.1%}",
                f"{summary.lost_us:.1f}",
                f"{summary.flops / summary.median_us / 1e3:.1f}" if summary.median_us else "-",
            ]
            for summary in profile.kinds()[:_MOST_ROWS]
        ],
        "-rrrrr",
    )


# ---- fusion limits ----


def _write_fusion(text: Text, fusion: Sequence[FusionLimit]) -> None:
    stopped = [one for one in fusion if one.stop.is_limit]
    text.line()
    text.line(f"fusions AOE's classes allow: {len(fusion)}, stopped by a limit: {len(stopped)}")
    for name, meaning in _CLASSES.items():
        count = sum(one.fusion_class == name for one in fusion)
        if count:
            text.line(f"  {name}: {count} ({meaning})")
    if not stopped:
        return
    text.table(
        ["fusion", "nodes", "stopped at", "why", "with O1", "here"],
        [
            [
                one.op_names[0],
                str(len(one.op_names)),
                f"{one.stopped_at} ({one.stopped_type})",
                "the class has all it may"
                if one.stop.value == "limit"
                else "reads several computed tensors",
                str(one.without_limits),
                here(one),
            ]
            for one in stopped[:_MOST_LIMITS]
        ],
        "nrn-r-",
    )
    if len(stopped) > _MOST_LIMITS:
        text.line((f"{len(stopped) - _MOST_LIMITS} more with --json", "dim"))


def here(one: FusionLimit) -> str:
    """Return the effect of a fusion limit on this machine."""
    if not one.runs_as:
        return "-"
    parts = plural(one.runs_as, "operator")
    return f"{parts}, goes on" if one.goes_on_here else parts
