"""Matrix products of quantised models: how they may be scheduled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB, known_algorithm
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.tiling import TASK
from aoe.kernels.matmul.blockwise import (
    BLOCKWISE_ALGORITHMS,
    BlockwiseProduct,
    blockwise_pipeline,
    blockwise_space,
    blockwise_steps,
    read_blockwise,
)
from aoe.kernels.matmul.family import (
    beside_tiles,
    check_level_tiles,
    matrix_tiles_space,
    task_steps,
)
from aoe.kernels.matmul.integers import (
    COLUMN_SUMS,
    COLUMN_SUMS_UPDATE,
    EXTREMES,
    EXTREMES_UPDATE,
    GROUPS,
    INTEGER_PRODUCTS,
    LANES,
    PANELS_AMX,
    PANELS_VNNI,
    PANELS_WIDENED,
    QUANTISED,
    QUANTISED_DEPTH,
    ROW_PARTS,
    ROW_PARTS_UPDATE,
    WHOLE,
    WHOLE_UPDATE,
    IntegerProduct,
    integer_pipeline,
    read_integer_product,
    reads_in_place,
)
from aoe.kernels.matmul.quantised import extreme_lanes
from aoe.kernels.matmul.shape import FEW_ROWS, PACKED, PANEL
from aoe.kernels.matmul.tiles import (
    QUANTISED_PANELS,
    ROUNDED_ROWS,
    product_space,
    result_steps,
    sum_steps,
)
from aoe.operators import op_key
from aoe.operators.quantised import BLOCKWISE_PRODUCT
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Workload

Product = IntegerProduct | BlockwiseProduct


class IntegerMatMul(PlannedFamily[Product]):
    """y = chain(a * b) of integers, b constant; float32 rows are quantised on the way in.

    ONNX Runtime computes the same sums near the roof where both have VNNI. What gains is the
    chain, the pass that quantises, and weights without a sign, which it has no instructions for.
    """

    name = "quantised_matmul"
    anchors = INTEGER_PRODUCTS | {BLOCKWISE_PRODUCT}

    def plan(self, workload: Workload) -> Product | Support:
        """Plan one product of integers and a chain, or tell why not."""
        if any(op_key(item) == BLOCKWISE_PRODUCT for item in workload.operations):
            return read_blockwise(workload)
        return read_integer_product(workload)

    def pipeline_of(self, plan: Product, algorithm: str) -> Pipeline:
        """Return an algorithm; the result of each is the same."""
        if isinstance(plan, BlockwiseProduct):
            name = algorithm or plan.algorithms(KernelTarget(vector_lanes=LANES, threads=1))[0]
            return blockwise_pipeline(plan, known_algorithm(self.name, name, BLOCKWISE_ALGORITHMS))
        name = known_algorithm(self.name, algorithm or PANELS_WIDENED, GROUPS)
        return integer_pipeline(plan, name)

    def space_of(self, plan: Product, target: KernelTarget) -> Space:
        """Return the register tile and what a task is, by the instructions of the CPU."""
        if isinstance(plan, BlockwiseProduct):
            return blockwise_space(plan, target)
        by_vectors = _vectors_space(plan, target)
        if target.int8_tiles and _check_tiles(plan):
            in_tiles = matrix_tiles_space(plan.product, target, PANELS_AMX, size=1)
            return beside_tiles(in_tiles, by_vectors)
        return by_vectors

    def schedule_of(self, plan: Product, values: Values, target: KernelTarget) -> Schedule:
        algorithm = str(values[KNOB])
        if isinstance(plan, BlockwiseProduct):
            return Schedule(tuple(blockwise_steps(values, plan, target)), algorithm=algorithm)
        if algorithm == PANELS_AMX:
            steps = list(task_steps(values, plan.product))
        else:
            steps = list(result_steps(values, plan.product, target))
            steps += sum_steps(values, plan.product, GROUPS[algorithm])
        if not reads_in_place(plan, algorithm):
            steps += _quantising_steps(plan)
        steps += _packing_steps(plan, GROUPS[algorithm])
        return Schedule(tuple(steps), algorithm=algorithm)


def _vectors_space(plan: IntegerProduct, target: KernelTarget) -> Space:
    """Return register tiles and what a task is, of the vectors the CPU has."""
    name = PANELS_VNNI if target.int8_dot else PANELS_WIDENED
    space = product_space(plan.product, target)

    def legal(values: Values) -> bool:
        return space.constraint({**values, KNOB: QUANTISED_PANELS})

    return Space(
        knobs=tuple(
            replace(knob, choices=(name,)) if knob.name == KNOB else knob for knob in space.knobs
        ),
        constraint=legal,
        first_guesses=tuple({**guess, KNOB: name} for guess in space.first_guesses),
    )


def _check_tiles(plan: IntegerProduct) -> Support:
    """Check that matrix tiles can compute a product, on a CPU that has them."""
    product = plan.product
    batch = tuple(range(len(product.rows) - 1))
    if product.right_axes and product.right_axes != batch:
        return Support("matrices that some rows of a batch share, in tiles")
    return check_level_tiles(product)


def _packing_steps(plan: IntegerProduct, group: int) -> Iterator[Step]:
    """Yield the steps of a right matrix that is packed, and summed up by columns, in every run."""
    product = plan.product
    if product.has_weights:
        return
    # the parts of a group lie side by side: their vectors are woven and stored as one
    yield sch.Unroll(PACKED, "part", group)
    yield sch.Vectorize(PACKED, "lane", PANEL)
    yield sch.Vectorize(COLUMN_SUMS, "lane", PANEL)
    outer = [product.iteration.axes[at].name for at in product.right_axes] or ["panel"]
    loops = ("c$x", "lane", "c$y", "panel", *reversed(outer if product.right_axes else []))
    yield sch.Reorder(COLUMN_SUMS_UPDATE, loops)
    yield sch.Atomic(COLUMN_SUMS_UPDATE)
    yield sch.Vectorize(COLUMN_SUMS_UPDATE, "c$x", group)
    yield sch.Vectorize(COLUMN_SUMS_UPDATE, "lane", PANEL)
    yield sch.Parallel(PACKED, outer[0])


def _quantising_steps(plan: IntegerProduct) -> Iterator[Step]:
    """Yield the steps of what is made of the left matrix before its products."""
    product = plan.product
    for stage in (ROW_PARTS, ROW_PARTS_UPDATE) if plan.sums_rows else ():
        yield sch.Vectorize(stage, "part", LANES)
    yield sch.Vectorize(QUANTISED, QUANTISED_DEPTH, LANES)
    lanes, row = extreme_lanes(product), product.rows[-1].name if product.rows else ""
    stages = [QUANTISED]
    if plan.is_dynamic:
        stages.append(EXTREMES)
        found = (EXTREMES, EXTREMES_UPDATE, *((WHOLE, WHOLE_UPDATE) if row else ()))
        for stage in found if lanes > 1 else ():
            yield sch.Vectorize(stage, "part", lanes)
    if not row or product.rows[-1].extent <= FEW_ROWS:
        return
    for stage in stages:
        yield sch.Split(stage, row, TASK, row, ROUNDED_ROWS, sch.Tail.GUARD)
        yield sch.Parallel(stage, TASK)
