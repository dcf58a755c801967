"""C tables of kernels that take any extents along some axes; see `aoe_open` of the glue."""

from __future__ import annotations

from aoe.errors import ScheduleError
from aoe.kernels.family import Pipeline
from aoe.schedule import Schedule
from aoe.workload import Workload


def open_declarations(
    symbol: str, workload: Workload, schedule: Schedule, pipeline: Pipeline, lanes: int
) -> list[str]:
    """Return the tables of what follows for open extents; nothing where shapes are fixed.

    Args:
        symbol: Function of the kernel.
        workload: What it computes.
        schedule: How.
        pipeline: Of the workload.
        lanes: Float32 elements of a vector register.

    Raises:
        ScheduleError: open extents do not follow from each other, or the schedule takes too many.
    """
    if not takes_extents(workload, pipeline):
        return []
    from aoe.kernels.halide.open_extents import extent_relations, variants_of

    lines = []
    if workload.is_open:
        relations = extent_relations(workload)
        if isinstance(relations, str):
            raise ScheduleError(symbol, relations)
        extents = ", ".join(
            f"{{ {one.tensor}, {one.axis}, {one.source}, {one.source_axis}, "
            f"{one.steps.times}, {one.steps.plus}, {one.steps.over} }}"
            for one in relations
        )
        lines.append(f"static const aoe_extent {symbol}_extents[] = {{ {extents} }};")
    variants = variants_of(pipeline, schedule, lanes)
    names = [f"{variant_symbol(symbol, number)}_argv" for number in range(len(variants))]
    rows = (
        f"{{ {name}, {{ {', '.join(map(str, variant.least))} }}, "
        f"{variant.tile}, {variant.cost:.1f}f, {variant.rest:.2f}f }}"
        for name, variant in zip(names, variants, strict=True)
    )
    return [
        *lines,
        *(f"int {name}(void **);" for name in names[1:]),
        f"static const aoe_variant {symbol}_variants[] = {{ {', '.join(rows)} }};",
    ]


def takes_extents(workload: Workload, pipeline: Pipeline) -> bool:
    """True for a kernel that reads open extents from its buffers."""
    return workload.is_open or bool(pipeline.open_dimensions)


def open_entry(symbol: str, workload: Workload, pipeline: Pipeline) -> str:
    """Return the part of a kernel's entry that names its `open_declarations`."""
    if not takes_extents(workload, pipeline):
        return "{0}"
    extents = extents_entry(symbol) if workload.is_open else "0, NULL"
    variants, tiled = f"{symbol}_variants", pipeline.tiled
    cut = "0, 0, 0"
    if tiled is not None:
        buffer = len(pipeline.arguments) if tiled.argument is None else tiled.argument
        cut = f"{buffer}, {tiled.dimension}, {tiled.rows_dimension or 0}"
    return f"{{ {extents}, sizeof {variants} / sizeof *{variants}, {variants}, {cut} }}"


def extents_entry(symbol: str) -> str:
    """Return the part of a kernel's entry that says how open extents follow from each other."""
    extents = f"{symbol}_extents"
    return f"sizeof {extents} / sizeof *{extents}, {extents}"


def variant_symbol(symbol: str, number: int) -> str:
    """Return the name of a kernel's function; of an open kernel the first has the largest tiles."""
    return f"{symbol}_{number}" if number else symbol
