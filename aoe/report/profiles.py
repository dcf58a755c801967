"""Profiles as text, documents and traces: one by lost time, two side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoe.profiling.comparing import ComparedOperators, ComparedProfiles
from aoe.profiling.document import SCHEMA, profile_to_json
from aoe.profiling.figures import FusionLimit, KindSummary, OperatorProfile, ProfiledModel
from aoe.report.quantities import figure, time_text, title_of
from aoe.report.written import ReportWithFiles
from aoe.workload import shape_text
from aoebank import members, plural

if TYPE_CHECKING:
    from aoebank import Column, Text


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
class ProfileReport(ReportWithFiles):
    """A profile, and what was written with it."""

    profile: ProfiledModel
    schema: str = SCHEMA

    def document(self) -> Mapping[str, object]:
        """Return every figure; see `docs/advise.md`."""
        return {**profile_to_json(self.profile), "written": self.files}

    def write(self, text: Text) -> None:
        for line in _head(self.profile):
            text.line(line)
        _write_operators(text, self.profile)
        _write_kinds(text, self.profile)
        if self.profile.fusion is not None:
            _write_fusion(text, self.profile.fusion)
        self.write_files(text)


# ---- the whole model ----


def _head(profile: ProfiledModel) -> Iterator[str]:
    yield (
        f"{profile.model}: {time_text(profile.model_us)} a run (shortest "
        f"{time_text(profile.model_min_us)}, {plural(profile.runs, 'run')} under the profiler, "
        f"{plural(profile.threads, 'thread')}) on {profile.cpu_model}"
    )
    yield (
        f"operators {time_text(profile.operators_us)}, of which {time_text(profile.lost_us)} "
        f"({lost_share(profile):.0%}) are lost: more than the machine needs at its best"
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
    for caveat in profile.caveats:
        yield f"do not believe these figures: {caveat}"


def _counters(profile: ProfiledModel) -> str:
    counters = profile.counters
    if counters.reason:
        return f"no hardware counters: {counters.reason}"
    counts = ", ".join(f"{name} {count:.3g}" for name, count in counters.per_run.items())
    ratio = counters.instructions_per_cycle
    per_cycle = f"; {ratio:.2f} instructions per cycle" if ratio is not None else ""
    return f"hardware counters of a run: {counts}{per_cycle}"


def lost_share(profile: ProfiledModel) -> float:
    """Return the share of the operators' time that is lost."""
    return profile.lost_us / (profile.operators_us or 1.0)


# ---- operators ----


def result_text(operator: OperatorProfile) -> str:
    """Return type, shape and layout of the first result of an operator."""
    shape = operator.output_shapes[0] if operator.output_shapes else None
    layout = "" if operator.layout == "plain" else f" {operator.layout}"
    return f"{operator.dtype} {shape_text(shape)}{layout}".strip()


def peak_text(share: float | None) -> str:
    """Return a share of the machine's best; more than all of it is no rate of the machine.

    A kernel that does less than the definition of its operator says is faster than the best (as by
    Winograd's method), and so is any where the best was measured on a busy machine.

    >>> peak_text(0.5), peak_text(2.24), peak_text(None)
    ('50%', '>100%', '-')
    """
    return ">100%" if share is not None and share > 1 else figure(share, ".0%")


def bound_text(operator: OperatorProfile) -> str:
    """Return the resource that bounds an operator; a dash where its work is not known."""
    return operator.bound.value if operator.work is not None else "-"


OPERATORS: tuple[Column[OperatorProfile], ...] = (
    ("operator", "n", title_of),
    ("computes", "-", lambda one: one.kind),
    ("result", "-", result_text),
    ("us", "r", lambda one: f"{one.median_us:.1f}"),
    ("lost us", "r", lambda one: figure(one.lost_us, ".1f")),
    ("of peak", "r", lambda one: peak_text(one.peak_share)),
    ("GF/s", "r", lambda one: figure(one.gflops_per_s, ".1f")),
    ("GB/s", "r", lambda one: figure(one.gbytes_per_s, ".1f")),
    ("bound by", "-", bound_text),
    ("warm us", "r", lambda one: figure(one.warm_us, ".1f")),
    ("threads", "r", lambda one: figure(one.best_threads, "d")),
)


def _write_operators(text: Text, profile: ProfiledModel) -> None:
    operators = profile.by_lost_time()
    text.line()
    text.line("operators, by lost time:")
    has_room = text.width is None or text.width >= _WIDE
    has_warm = any(operator.warm_us is not None for operator in operators)
    has = {"result": has_room, "warm us": has_warm, "threads": profile.best_threads is not None}
    left_out = {title for title, is_shown in has.items() if not is_shown}
    text.columns(operators, *(one for one in OPERATORS if one[0] not in left_out), most=_MOST_ROWS)


def _write_kinds(text: Text, profile: ProfiledModel) -> None:
    total = profile.operators_us or 1.0
    # of operators whose work is known: rates are theirs
    computing_us: defaultdict[str, float] = defaultdict(float)
    for operator in profile.operators:
        if operator.flops is not None:
            computing_us[operator.kind] += operator.median_us

    def gflops_per_s(one: KindSummary) -> float | None:
        time_us = computing_us[one.kind]
        return one.flops / time_us / 1e3 if time_us else None

    text.line()
    text.line("kinds, by time:")
    text.columns(
        profile.kinds(),
        ("kind", "-", lambda one: one.kind),
        ("operators", "r", lambda one: str(one.operators)),
        ("us", "r", lambda one: f"{one.median_us:.1f}"),
        ("share", "r", lambda one: f"{one.median_us / total:.1%}"),
        ("lost us", "r", lambda one: f"{one.lost_us:.1f}"),
        ("GF/s", "r", lambda one: figure(gflops_per_s(one), ".1f")),
        most=_MOST_ROWS,
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
    joined = [one for one in fusion if one.through_cache]
    if joined:
        text.columns(
            joined,
            ("fusion", "n", lambda one: one.op_names[0]),
            ("nodes", "r", lambda one: str(len(one.op_names))),
            ("joins through the cache (L2)", "n", lambda one: one.through_cache),
            most=_MOST_LIMITS,
        )
    if not stopped:
        return
    why = {"limit": "the class has all it may"}
    text.columns(
        stopped,
        ("fusion", "n", lambda one: one.op_names[0]),
        ("nodes", "r", lambda one: str(len(one.op_names))),
        ("stopped at", "n", lambda one: f"{one.stopped_at} ({one.stopped_type})"),
        ("why", "-", lambda one: why.get(one.stop.value, "reads several computed tensors")),
        ("with O1", "r", lambda one: str(one.without_limits)),
        ("here", "-", here),
        most=_MOST_LIMITS,
    )


def here(one: FusionLimit) -> str:
    """Return the effect of a fusion limit on this machine."""
    if not one.runs_as:
        return "-"
    parts = plural(one.runs_as, "operator")
    return f"{parts}, goes on" if one.goes_on_here else parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileComparisonReport(ReportWithFiles):
    """Times of each operator and each kind before and after."""

    compared: ComparedProfiles
    schema: str = "aoe.profile_comparison/1"

    def document(self) -> Mapping[str, object]:
        return {**comparison_members(self.compared), "written": self.files}

    def write(self, text: Text) -> None:
        compared = self.compared
        before, after = compared.before, compared.after
        text.line(f"before {before.model}: {time_text(before.model_us)} a run")
        text.line(
            f"after  {after.model}: {time_text(after.model_us)} a run, "
            f"{figure(compared.speedup, '.3f')}x as fast"
        )
        for caveat in compared.caveats:
            text.line(f"not to be compared: {caveat}")
        text.line()
        text.line("operators, by what has changed:")
        write_operators(text, compared.operators)
        text.line()
        text.line("kinds, by what has changed:")
        text.columns(
            compared.kinds(),
            ("kind", "-", lambda one: one.kind),
            ("places", "r", lambda one: str(one.places)),
            ("before us", "r", lambda one: f"{one.before_us:.1f}"),
            ("after us", "r", lambda one: f"{one.after_us:.1f}"),
            ("x", "r", lambda one: figure(one.speedup, ".2f")),
            most=_MOST_ROWS,
        )
        self.write_files(text)


def comparison_members(compared: ComparedProfiles) -> dict[str, object]:
    """Return the times before and after, of the model, of kinds and of operators."""
    return {
        **members(
            compared,
            "before=before.model after=after.model before_us=before.model_us "
            "after_us=after.model_us speedup:4 doubts=caveats",
        ),
        "kinds": [
            members(one, "kind places before_us:4 after_us:4 speedup:4") for one in compared.kinds()
        ],
        "operators": [_compared_members(one) for one in compared.operators],
    }


def write_operators(text: Text, operators: Sequence[ComparedOperators]) -> None:
    """Write the first of the given operators as a table, and the number of the others."""
    text.columns(
        operators,
        ("operator", "n", names_text),
        ("computes", "-", lambda one: one.kind),
        ("before us", "r", lambda one: figure(one.before_us if one.before else None, ".1f")),
        ("after us", "r", lambda one: figure(one.after_us if one.after else None, ".1f")),
        ("x", "r", lambda one: figure(one.speedup, ".2f")),
        most=_MOST_ROWS,
    )


def names_text(one: ComparedOperators) -> str:
    """Return the first of the nodes, and how many more there are."""
    more = len(one.op_names) - 1
    return f"{one.op_names[0]} +{more}" if more else one.op_names[0]


def _compared_members(one: ComparedOperators) -> Mapping[str, object]:
    return {
        **members(one, "op_names kind"),
        "before": [operator.name for operator in one.before],
        "after": [operator.name for operator in one.after],
        **members(one, "before_us:4 after_us:4 speedup:4"),
    }


_PROCESS = 1


def trace_document(profile: ProfiledModel) -> dict[str, Any]:
    """Return the run of a profile whose time is the median, in the Trace Event Format.

    Lanes: the operators, and above them the nodes of the user's model.
    Source: Trace Event Format, Google, 2016; times are microseconds.
    """
    by_name = {operator.name: operator for operator in profile.operators}
    events: list[dict[str, Any]] = [
        _name("process_name", 0, profile.model),
        _name("thread_name", 1, "nodes of the model"),
        _name("thread_name", 2, f"operators, {plural(profile.threads, 'thread')}"),
    ]
    for run in profile.timeline:
        operator = by_name.get(run.node)
        if operator is not None:
            events += _events(operator, run.start_us, run.duration_us)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"soc_version": profile.soc_version, "cpu_model": profile.cpu_model},
    }


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _events(
    operator: OperatorProfile, start_us: float, duration_us: float
) -> Iterator[dict[str, Any]]:
    place = {
        "ph": "X",
        "cat": operator.kind,
        "pid": _PROCESS,
        "ts": round(start_us, 3),
        "dur": round(duration_us, 3),
    }
    facts = {
        "op_type": operator.op_type,
        "inputs": [shape_text(shape) for shape in operator.input_shapes],
        "outputs": [shape_text(shape) for shape in operator.output_shapes],
        "dtype": operator.dtype,
        "layout": operator.layout,
        "median_us": operator.median_us,
        "roofline_us": operator.roofline_us,
        "lost_us": operator.lost_us,
        "bound": operator.bound.value,
    }
    if operator.op_names:
        yield {**place, "tid": 1, "name": " + ".join(operator.op_names), "args": {}}
    yield {**place, "tid": 2, "name": operator.name, "args": facts}
