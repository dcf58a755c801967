"""Builder: kernels with their schedules become one library ONNX Runtime can load."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial
from importlib import resources
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Self

from aoe.device.feature_check import TILES_FEATURE, feature_check
from aoe.device.open_tables import (
    extents_entry,
    open_declarations,
    open_entry,
    takes_extents,
    variant_symbol,
)
from aoe.device.toolchain import INSTALL_HINT, Toolchain, halide_include
from aoe.errors import BuildError, ScheduleError
from aoe.folders.scratch import ScratchFolder
from aoe.graph.extents import OpenShape, shape_at
from aoe.graph.stored_layouts import StoredDimension, StoredLayout
from aoe.kernels.family import (
    MOST_LANES,
    BufferView,
    Indices,
    OpenAxes,
    OpenDimension,
    Pipeline,
)
from aoe.kernels.host_products import hosted_product, is_hosted
from aoe.schedule import Schedule, schedule_to_json
from aoe.target import Target
from aoe.workload import TensorSpec, Workload, workload_to_json

BUILD_FEATURES = ("no_runtime", "no_asserts", "no_bounds_query", "user_context")
"""What Halide leaves out of kernels of a tuned model, and whom they ask for threads."""
MOST_BLOCKS = 10
"""Of a kernel made of others: AOE_MAX_BLOCKS of `kernels/glue/aoe_kernels.h`."""
_C_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
_LINK_FLAGS = (
    *("-shared", "-pthread", "-s"),
    *("-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,--build-id=none"),
)
_DENSE = BufferView(tensor=0, strides=())


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """A kernel to be built."""

    name: str  # Operator name in the domain `aoe`; a C identifier, distinct within a library
    workload: Workload  # What it computes
    schedule: Schedule  # How

    @classmethod
    def of(cls, workload: Workload, schedule: Schedule) -> Self:
        """Return the kernel of a schedule, under the name that is its own."""
        name = kernel_name(workload, schedule)
        return cls(name=name, workload=workload, schedule=schedule)

    @property
    def is_hosted(self) -> bool:
        """True if operators of ONNX Runtime compute it: there is nothing to compile."""
        return is_hosted(self.schedule.algorithm)

    @property
    def parts(self) -> tuple[KernelSource, ...]:
        """What is compiled for it."""
        return (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """A kernel for a fixed number of rows, or from some size on, as a part of one for any."""

    rows: int  # How many it computes
    source: KernelSource  # The kernel
    us: float  # Measured time of a call, by which rows are cut into blocks; 0 where none are


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKernel(KernelSource):
    """A kernel for open extents, made of others; workload and schedule are those of the largest."""

    # Fixed shapes, then the largest first; the last one has one row, or as few as there may be.
    blocks: tuple[RowBlock, ...]

    @property
    def parts(self) -> tuple[KernelSource, ...]:
        """What is compiled for it: its blocks."""
        return tuple(block.source for block in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKernel(BlockKernel):
    """A kernel for any number of rows, which it computes in blocks of fixed numbers."""

    open_rank: int  # Leading dimensions that are open: together they are the rows
    # For each input, whether it has them; the others are the same for all rows.
    open_inputs: tuple[bool, ...]
    # Of each input and of the result, as ONNX Runtime reports them; what stands for open dimensions
    # says nothing.
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtentKernel(BlockKernel):
    """A kernel for open extents: of its blocks, which read extents at run time, it calls one.

    That is the largest one of no more rows than a dimension of the result has.
    """

    # Of each input and of the result as they are stored, with names for open extents.
    shapes: tuple[OpenShape, ...]
    layouts: tuple[StoredLayout, ...]  # Where the dimensions of those of the workload lie in them
    rows_dimension: int  # Of the result


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageKernel(BlockKernel):
    """A kernel along the open axes of its workload that has several schedules, and fixed shapes.

    A block of fixed shape computes calls of exactly its shapes. Of the others it is the first one
    whose `rows`, elements of the result, are no more than the call has; the last is for any. Of a
    product of any number of rows, workload and schedule are those of a fixed number of them.
    """


def row_kernel(
    blocks: Sequence[RowBlock],
    *,
    open_rank: int,
    open_inputs: Sequence[bool],
    shapes: Sequence[Sequence[int]],
) -> RowKernel:
    """Return the kernel of blocks, under the name that is its own; see `RowKernel`."""
    ordered = _fewest(sorted(blocks, key=lambda block: -block.rows))
    largest = ordered[0].source
    # blocks read a closed tensor without extents of 1 that it may have in front
    kept = [
        list(shape[open_rank:] if is_open else shape)
        for shape, is_open in zip(shapes, (*open_inputs, True), strict=False)
    ]
    facts = [open_rank, list(open_inputs), kept]
    return RowKernel(
        name=_block_kernel_name("rows", ordered, facts),
        workload=largest.workload,
        schedule=largest.schedule,
        open_rank=open_rank,
        open_inputs=tuple(open_inputs),
        shapes=tuple(map(tuple, shapes)),
        blocks=tuple(ordered),
    )


def extent_kernel(
    blocks: Sequence[RowBlock],
    *,
    shapes: Sequence[OpenShape],
    layouts: Sequence[StoredLayout],
    rows_dimension: int,
) -> ExtentKernel:
    """Return the kernel of blocks for open extents, under its own name; see `ExtentKernel`."""
    ordered = _fewest(sorted(blocks, key=lambda block: -block.rows))
    lying = [[astuple(one) for one in layout] for layout in layouts]
    facts = [list(map(list, shapes)), lying, rows_dimension]
    return ExtentKernel(
        name=_block_kernel_name("extents", ordered, facts),
        workload=ordered[0].source.workload,
        schedule=ordered[0].source.schedule,
        blocks=tuple(ordered),
        shapes=tuple(shapes),
        layouts=tuple(layouts),
        rows_dimension=rows_dimension,
    )


def image_kernel(
    variants: Mapping[int, KernelSource], fixed: Sequence[KernelSource] = ()
) -> KernelSource:
    """Return the kernel of open axes with these schedules, under its own name.

    Args:
        variants: By the elements of the result from which on each computes; the least is 0.
        fixed: Kernels of the same in fixed shapes, which compute just these.
    """
    if not fixed and len(variants) == 1:
        return variants[0]
    any_size = sorted(variants.items(), reverse=True)
    blocks = [RowBlock(rows=one.workload.output.size, source=one, us=0.0) for one in fixed]
    blocks += [RowBlock(rows=least, source=source, us=0.0) for least, source in any_size]
    blocks = _fewest(blocks)
    return ImageKernel(
        name=_block_kernel_name("images", blocks, []),
        workload=any_size[0][1].workload,
        schedule=any_size[0][1].schedule,
        blocks=tuple(blocks),
    )


def open_rows_kernel(variants: Mapping[int, KernelSource], record: KernelSource) -> ImageKernel:
    """Return the kernel of a product of any number of rows, under its own name.

    Args:
        variants: By the elements of the result from which on each computes; the least is 0.
        record: The kernel of a fixed number of rows the bank has the record of.
    """
    any_rows = sorted(variants.items(), reverse=True)
    blocks = _fewest([RowBlock(rows=least, source=one, us=0.0) for least, one in any_rows])
    return ImageKernel(
        name=_block_kernel_name("rows", blocks, []),
        workload=record.workload,
        schedule=record.schedule,
        blocks=tuple(blocks),
    )


def _fewest(blocks: list[RowBlock]) -> list[RowBlock]:
    """Return as many blocks as a kernel may have: the first ones, and the last for what is left."""
    return blocks if len(blocks) <= MOST_BLOCKS else [*blocks[: MOST_BLOCKS - 1], blocks[-1]]


def _block_kernel_name(kind: str, blocks: Sequence[RowBlock], facts: Sequence[object]) -> str:
    text = json.dumps([*facts, [[one.rows, one.source.name, one.us] for one in blocks]])
    family = blocks[0].source.workload.op_type
    return f"{family}_{kind}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def kernel_name(workload: Workload, schedule: Schedule) -> str:
    """Return the operator name of a kernel: its family and a digest of what it is."""
    text = json.dumps([workload_to_json(workload), schedule_to_json(schedule)])
    return f"{workload.op_type}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def required_features(sources: Sequence[KernelSource], target: Target) -> tuple[str, ...]:
    """Return the CPU features a machine needs to run these kernels of `target`."""
    needed = dict.fromkeys(target.cpu_features)
    for part in (part for source in sources for part in source.parts):
        needed |= dict.fromkeys(_target_of(part, target).cpu_features)
    return tuple(needed)


def halide_features(
    source: KernelSource, target: Target, build_features: Sequence[str] = BUILD_FEATURES
) -> str:
    """Return Halide's target features of the machine a kernel is for."""
    return "-".join((_target_of(source, target).halide_name, *build_features))


def load_compiler() -> None:
    """Import what compiling needs, so that forks of this process begin with it."""
    import halide  # noqa: F401

    import aoe.kernels.halide.apply
    import aoe.kernels.registry  # noqa: F401


def check_kernel(source: KernelSource) -> None:
    """Apply a schedule to its pipeline; nothing is compiled.

    Raises:
        ScheduleError: the schedule does not fit the kernel.
    """
    if source.is_hosted:
        if hosted_product(source.workload) is None:
            problem = f"ONNX Runtime has no operator for {source.schedule.algorithm} of it"
            raise ScheduleError(source.name, problem)
        return
    from aoe.kernels.halide.apply import apply_schedule

    for schedule in _schedules_of(source, _pipeline_of(source)):
        apply_schedule(_pipeline_of(source), schedule)


def compile_kernel(
    source: KernelSource,
    target: Target,
    directory: Path,
    build_features: Sequence[str] = BUILD_FEATURES,
) -> Path:
    """Compile one kernel to an object file; what packs its inputs comes to lie beside it.

    Its function is `kernel_symbol`, those that pack its inputs `packing_symbol`.

    Raises:
        ScheduleError: the schedule does not fit the kernel.
        BuildError: Halide cannot compile it.
    """
    import halide as hl

    from aoe.kernels.halide.apply import apply_schedule, set_extents

    pipeline = _pipeline_of(source)
    file = directory / f"{source.name}.o"
    halide_target = hl.Target(halide_features(source, target, build_features))
    symbol = kernel_symbol(source.name)
    try:
        for number, schedule in enumerate(_schedules_of(source, pipeline, target.vector_lanes)):
            made = pipeline if number == 0 else _pipeline_of(source)
            apply_schedule(made, schedule)
            set_extents(made)
            made.output.compile_to_object(
                str(file.with_suffix(f".{number}.o") if number else file),
                list(made.arguments),
                variant_symbol(symbol, number),
                halide_target,
            )
        for number, packing in pipeline.packings.items():
            packing.output.compile_to_object(
                str(file.with_suffix(f".pack{number}.o")),
                [packing.argument],
                packing_symbol(symbol, number),
                halide_target,
            )
    except hl.HalideError as error:
        raise ScheduleError(source.name, f"Halide cannot compile it: {error}") from error
    except RuntimeError as error:
        raise BuildError(source.name, f"Halide failed: {error}") from error
    return file


def objects_of(file: Path) -> tuple[Path, ...]:
    """Return all object files of a compiled kernel, given its own."""
    folder, name = file.parent, file.stem
    return (file, *sorted(folder.glob(f"{name}.pack*.o")), *sorted(folder.glob(f"{name}.[0-9].o")))


def build_library(
    sources: Sequence[KernelSource],
    objects: Sequence[Path],
    *,
    target: Target,
    toolchain: Toolchain,
    file: Path,
) -> Path:
    """Link compiled kernels and the glue into a library of custom operators.

    Args:
        sources: The kernels.
        objects: What `compile_kernel` wrote for their parts.
        target: What they are compiled for; the library asks for its CPU features when loaded.
        toolchain: The C compiler.
        file: The library to write.

    Raises:
        BuildError: the compiler fails.
    """
    table = file.with_suffix(".table.c")
    table.write_text(kernel_table(sources, target))
    glue = resources.files("aoe.kernels") / "glue"
    with (
        resources.as_file(glue) as folder,
        ThreadPoolExecutor() as pool,
        toolchain.ended_by_interrupt(),
    ):
        compiled = partial(_compile_glue, folder, toolchain=toolchain, directory=file.parent)
        parts = list(pool.map(compiled, _glue_parts(required_features(sources, target))))
        toolchain.run(
            [
                *(*_C_FLAGS, *_LINK_FLAGS, *_include_flags(folder), "-o", str(file)),
                *(str(table), *(str(part) for part in parts)),
                *(str(part) for file_ in objects for part in objects_of(file_)),
                "-lm",
            ],
            what="linking kernels",
        )
    table.unlink()
    return file


def check_toolchain(toolchain: Toolchain, target: Target) -> None:
    """Link a library without kernels, so that a useless compiler is found before any tuning.

    Raises:
        BuildError: the compiler cannot do it.
    """
    with ScratchFolder("cc") as scratch:
        file = scratch / "empty.so"
        try:
            build_library([], [], target=target, toolchain=toolchain, file=file)
        except BuildError as error:
            raise BuildError(
                "C compiler",
                f"cannot build a library: {error.problem}",
                hint=error.hint or INSTALL_HINT,
            ) from error
        if not file.exists():
            raise BuildError(
                "C compiler",
                "reports success, but wrote no library",
                got=" ".join(toolchain.command),
                hint=INSTALL_HINT,
            )


def _glue_parts(features: Collection[str]) -> tuple[str, ...]:
    """Return the C files, without suffix, of kernels that need these CPU features."""
    parts = ("glue", "row_cuts", "scratch", "shared_packs", "file_pages", "indices", "tables")
    return (*parts, "tiles") if TILES_FEATURE in features else parts


def _compile_glue(folder: Path, part: str, toolchain: Toolchain, directory: Path) -> Path:
    """Return the object of a C file of the glue, compiled now unless it is kept."""
    file, kept = directory / f"aoe_{part}.o", toolchain.kept
    if file.exists():
        return file
    name = f"{_glue_key(folder, part, toolchain)}.glue" if kept is not None else ""
    if kept is None or not kept.take(name, directory):
        toolchain.run(
            [*_C_FLAGS, "-c", *_include_flags(folder), "-o", str(file), str(folder / f"{part}.c")],
            what="compiling the glue",
        )
        if kept is not None and file.exists():
            kept.put(name, [file])
    return file


def _glue_key(folder: Path, part: str, toolchain: Toolchain) -> str:
    """Return a digest of all that decides the bytes of a C file's object."""
    digest = hashlib.sha256(f"{toolchain.identity()} {_C_FLAGS} {version('halide')}".encode())
    for file in (folder / f"{part}.c", *sorted(folder.glob("*.h"))):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def kernel_table(sources: Sequence[KernelSource], target: Target) -> str:
    """Return the C file that tells the glue which kernels there are."""
    lines = ["#include <stddef.h>", '#include "aoe_kernels.h"', ""]
    parts = {part.name: part for source in sources for part in source.parts}
    pipelines, packings = (
        {name: _pipeline_of(part) for name, part in parts.items()},
        _PackingTables(),
    )
    entries = {}
    for name, part in parts.items():
        lines += _declarations(part, pipelines[name], packings, target.vector_lanes)
        entries[name] = _entry(part, pipelines[name], packings)
    for source in sources:
        if isinstance(source, RowKernel):
            lines += _row_declarations(source, entries)
            entries[source.name] = _row_entry(source)
        elif isinstance(source, ExtentKernel):
            lines += _extent_declarations(source, pipelines, packings)
            entries[source.name] = _extent_entry(source)
        elif isinstance(source, ImageKernel):
            lines += _block_lines(source, [entries[block.source.name] for block in source.blocks])
            entries[source.name] = _image_entry(source, pipelines)
    lines += ["const aoe_kernel aoe_kernel_table[] = {"]
    lines += [*(f"  {entries[source.name]}," for source in sources), "};"]
    lines.append(f"const int aoe_kernel_count = {len(sources)};")
    needed = required_features(sources, target)
    lines.append(feature_check(needed, x86="x86" in target.halide_name))
    return "\n".join([*lines, ""])


def _target_of(source: KernelSource, target: Target) -> Target:
    return target.for_kernel(source.workload.precision, source.schedule.algorithm)


class _PackingTables:
    """C tables of packed inputs: kernels that keep an input in one form share the table.

    What is packed is shared by table, so blocks of one kernel keep their weights once.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def name_of(self, source: KernelSource, pipeline: Pipeline) -> str:
        """Return the table of a kernel: its own, or that of one before it."""
        own = f"{kernel_symbol(source.name)}_packings"
        forms = [
            [
                *(number, one.source, one.read_dtype, one.dtype, one.argument_extents),
                pipeline.argument_extents[number],
                _readers(source.workload, number if one.source is None else one.source),
            ]
            for number, one in pipeline.packings.items()
        ]
        form = json.dumps([source.workload.op_type, source.schedule.algorithm, forms])
        return self._names.setdefault(form, own)


def _readers(workload: Workload, number: int) -> list[object]:
    """Return JSON of the operators that read an input: weights by columns are packed otherwise."""
    readers = (one for one in workload.operations if f"x{number}" in one.inputs)
    return [[one.domain, one.op_type, dict(one.attributes)] for one in readers]


def _declarations(
    source: KernelSource, pipeline: Pipeline, tables: _PackingTables, lanes: int
) -> list[str]:
    symbol = kernel_symbol(source.name)
    inputs = source.workload.inputs
    packed = {number: packing.dtype for number, packing in pipeline.packings.items()}
    specs = [*inputs, *[TensorSpec(shape=())] * (len(pipeline.arguments) - len(inputs))]
    arguments = ", ".join(
        _tensor(
            spec,
            extents,
            packed.get(number, spec.dtype),
            pipeline.open_axes[number] if pipeline.open_axes else (),
            pipeline.views.get(number, _DENSE),
        )
        for number, (spec, extents) in enumerate(zip(specs, pipeline.argument_extents, strict=True))
    )
    lines = [
        f"int {symbol}_argv(void **);",
        f"static const aoe_tensor {symbol}_arguments[] = {{ {arguments or '{0}'} }};",
        *open_declarations(symbol, source.workload, source.schedule, pipeline, lanes),
    ]
    if pipeline.indexed:
        checked = ", ".join(map(_indices, pipeline.indexed))
        lines.append(f"static const aoe_indices {symbol}_indices[] = {{ {checked} }};")
    table = f"{symbol}_packings"
    if pipeline.packings and tables.name_of(source, pipeline) == table:
        lines += [
            f"int {packing_symbol(symbol, number)}_argv(void **);" for number in pipeline.packings
        ]
        packings = ", ".join(
            f"{{ {number}, {number if packing.source is None else packing.source}, "
            f"{packing_symbol(symbol, number)}_argv, AOE_{packing.read_dtype.upper()}, "
            f"{len(packing.argument_extents)}, {{ {_listed(packing.argument_extents)} }} }}"
            for number, packing in pipeline.packings.items()
        )
        lines.append(f"static const aoe_packing {table}[] = {{ {packings} }};")
    return lines


def _entry(
    source: KernelSource, pipeline: Pipeline, tables: _PackingTables, dimensions: str = "NULL"
) -> str:
    symbol = kernel_symbol(source.name)
    result = source.workload.output
    open_axes = pipeline.open_axes[-1] if pipeline.open_axes else ()
    view = pipeline.views.get(len(pipeline.arguments), _DENSE)
    output = _tensor(result, pipeline.output_extents, result.dtype, open_axes=open_axes, view=view)
    packings = tables.name_of(source, pipeline) if pipeline.packings else "NULL"
    counts = f"{len(source.workload.inputs)}, {len(pipeline.arguments)}"
    opened = open_entry(symbol, source.workload, pipeline)
    return (
        f'{{ "{source.name}", {symbol}_argv, {counts}, {symbol}_arguments, {output}, '
        f"{len(pipeline.packings)}, {packings}, {{0}}, {dimensions}, {opened}, "
        f"{len(pipeline.indexed)}, {f'{symbol}_indices' if pipeline.indexed else 'NULL'} }}"
    )


def _indices(one: Indices) -> str:
    """Return the entry of indices that the glue checks."""
    numbers = f"{one.tensor}, {one.length}, {one.offset}"
    return f"{{ {numbers}, {{ {_listed(one.counts)} }}, {{ {_listed(one.strides)} }} }}"


def _schedules_of(
    source: KernelSource, pipeline: Pipeline, lanes: int = MOST_LANES
) -> list[Schedule]:
    """Return the schedule of a kernel; of an open one also those for smaller results.

    Args:
        source: The kernel.
        pipeline: Of its workload.
        lanes: Float32 elements of a vector register.
    """
    if not takes_extents(source.workload, pipeline):
        return [source.schedule]
    from aoe.kernels.halide.open_extents import variants_of

    return [one.schedule for one in variants_of(pipeline, source.schedule, lanes)]


def _row_declarations(source: RowKernel, entries: Mapping[str, str]) -> list[str]:
    """Return the C tables of a kernel for any number of rows: its arguments and its blocks."""
    symbol = kernel_symbol(source.name)
    inputs = zip(source.workload.inputs, source.shapes, strict=False)
    arguments = ", ".join(_outside(spec.dtype, shape) for spec, shape in inputs)
    lines = [f"static const aoe_tensor {symbol}_arguments[] = {{ {arguments} }};"]
    return [*lines, *_block_lines(source, [entries[block.source.name] for block in source.blocks])]


def _block_lines(source: BlockKernel, entries: Sequence[str]) -> Iterator[str]:
    """Yield the C tables of the blocks of a kernel."""
    symbol = kernel_symbol(source.name)
    for number, entry in enumerate(entries):
        yield f"static const aoe_kernel {symbol}_block{number} = {entry};"
    blocks = ", ".join(
        f"{{ {block.rows}, {block.us:.3f}f, &{symbol}_block{number} }}"
        for number, block in enumerate(source.blocks)
    )
    yield f"static const aoe_block {symbol}_blocks[] = {{ {blocks} }};"
    yield (
        f"_Static_assert(sizeof {symbol}_blocks / sizeof *{symbol}_blocks <= AOE_MAX_BLOCKS, "
        '"blocks");'
    )


def _row_entry(source: RowKernel) -> str:
    symbol = kernel_symbol(source.name)
    mask = sum(1 << number for number, is_open in enumerate(source.open_inputs) if is_open)
    output = _outside(source.workload.output.dtype, source.shapes[-1])
    count = len(source.workload.inputs)
    return (
        f'{{ "{source.name}", NULL, {count}, {count}, {symbol}_arguments, {output}, 0, NULL, '
        f"{{ {source.open_rank}, {mask}ull, {len(source.blocks)}, {symbol}_blocks, 0, 0 }}, "
        "NULL, {0}, 0, NULL }"
    )


def _extent_declarations(
    source: ExtentKernel, pipelines: Mapping[str, Pipeline], packings: _PackingTables
) -> list[str]:
    """Return the C tables of a kernel for open extents: its arguments and its blocks."""
    symbol = kernel_symbol(source.name)
    *shapes, _ = _numbered(source.shapes)
    inputs = zip(source.workload.inputs, shapes, strict=True)
    arguments = ", ".join(_outside(spec.dtype, shape) for spec, shape in inputs)
    lines = [f"static const aoe_tensor {symbol}_arguments[] = {{ {arguments} }};"]
    entries = []
    for block in source.blocks:
        pipeline, table = pipelines[block.source.name], f"{symbol}_{block.rows}_dimensions"
        pairs = zip(pipeline.open_dimensions, source.layouts, strict=True)
        rows = ", ".join(f"{{ {_lying(dims, layout)} }}" for dims, layout in pairs)
        lines.append(f"static const aoe_dimension {table}[][AOE_MAX_RANK] = {{ {rows} }};")
        entries.append(_entry(block.source, pipeline, packings, table))
    return [*lines, *_block_lines(source, entries)]


def _lying(dimensions: Sequence[OpenDimension], layout: StoredLayout) -> str:
    """Return the C initializers of the dimensions of a buffer."""
    nothing = StoredDimension(-1)
    places = [layout[dim.source] if dim.source >= 0 else nothing for dim in dimensions]
    return ", ".join(f"{{ {one.source}, {one.extent}, {one.step} }}" for one in places)


def _extent_entry(source: ExtentKernel) -> str:
    symbol = kernel_symbol(source.name)
    shapes = _numbered(source.shapes)
    output = _outside(source.workload.output.dtype, shapes[-1])
    count, names = len(source.workload.inputs), _names(source.shapes)
    chosen = f"{len(names)}, {source.rows_dimension}"
    return (
        f'{{ "{source.name}", NULL, {count}, {count}, {symbol}_arguments, {output}, 0, NULL, '
        f"{{ 0, 0, {len(source.blocks)}, {symbol}_blocks, {chosen} }}, "
        "NULL, {0}, 0, NULL }"
    )


def _image_entry(source: ImageKernel, pipelines: Mapping[str, Pipeline]) -> str:
    """Return the entry of a kernel of open axes: the tensors of a part of it, and its blocks."""
    part = source.blocks[-1].source
    pipeline, result = pipelines[part.name], part.workload.output
    output = _tensor(
        result, pipeline.output_extents, result.dtype, open_axes=pipeline.open_axes[-1]
    )
    count, symbol = len(part.workload.inputs), kernel_symbol(part.name)
    blocks = f"{kernel_symbol(source.name)}_blocks"
    return (
        f'{{ "{source.name}", NULL, {count}, {count}, {symbol}_arguments, {output}, 0, NULL, '
        f"{{ 0, 0, {len(source.blocks)}, {blocks}, 0, 0 }}, "
        f"NULL, {{ {extents_entry(symbol)}, 0, NULL, 0, 0, 0 }}, 0, NULL }}"
    )


def _names(shapes: Sequence[OpenShape]) -> list[str]:
    """Return the names of open extents, each once."""
    return list(dict.fromkeys(one for shape in shapes for one in shape if isinstance(one, str)))


def _numbered(shapes: Sequence[OpenShape]) -> list[tuple[int, ...]]:
    """Return shapes with -1 for the first name of an open extent, -2 for the second, and so on."""
    numbers = {name: -1 - number for number, name in enumerate(_names(shapes))}
    return [shape_at(shape, numbers) for shape in shapes]


def _outside(dtype: str, shape: Sequence[int]) -> str:
    """Return the entry of a tensor as ONNX Runtime has it; no kernel sees it as a whole."""
    return _viewed(shape, dtype, f"0, {{ 0 }}, AOE_{dtype.upper()}")


def _pipeline_of(source: KernelSource) -> Pipeline:
    from aoe.kernels.registry import get_family

    family = get_family(source.workload.op_type)
    try:
        pipeline = family.pipeline(source.workload, source.schedule.algorithm)
    except ValueError as error:  # a bank may name anything
        raise ScheduleError(source.name, str(error)) from error
    if not source.workload.is_open:
        return pipeline
    from aoe.kernels.halide.open_extents import opened

    return opened(pipeline, source.workload)


def _listed(extents: Sequence[int]) -> str:
    return ", ".join(map(str, extents)) or "0"


def packing_symbol(symbol: str, number: int) -> str:
    """Return the name of the function that packs an input of a kernel, given the kernel's."""
    return f"{symbol}_pack{number}"


def _tensor(
    spec: TensorSpec,
    extents: Sequence[int],
    dtype: str,
    open_axes: OpenAxes = (),
    view: BufferView = _DENSE,
) -> str:
    """Return the entry of an argument: the ONNX tensor, and the buffer the kernel sees of it."""
    fixed, masks = list(extents), [0]
    if any(open_axes):
        pairs = list(zip(extents, open_axes, strict=True))
        fixed = [extent // prod(spec.shape[one] for one in axes) for extent, axes in pairs]
        masks = [sum(1 << axis for axis in axes) for axes in open_axes]
    seen = f"{len(extents)}, {{ {_listed(fixed)} }}, AOE_{dtype.upper()}"
    return _viewed(spec.shape, spec.dtype, seen, masks, view)


def _viewed(
    shape: Sequence[int],
    dtype: str,
    seen: str,
    masks: Sequence[int] = (0,),
    view: BufferView = _DENSE,
) -> str:
    given = f"AOE_{dtype.upper()}, {{ {_listed(masks)} }}"
    lying = f"{{ {_listed(view.strides or (0,))} }}, {view.offset}, {view.tensor}"
    return f"{{ {len(shape)}, {{ {_listed(shape)} }}, {seen}, {given}, {lying} }}"


def _include_flags(folder: Path) -> tuple[str, str]:
    return f"-I{folder}", f"-I{halide_include()}"


def kernel_symbol(name: str) -> str:
    """Return the name of a kernel's function in its object file."""
    return f"aoe_kernel_{name}"
