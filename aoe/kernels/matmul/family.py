"""Matrix products with the chain behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aoe.kernels.algorithms import KNOB, known_algorithm
from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.matmul.bfloat16_pairs import pairs_pipeline
from aoe.kernels.matmul.int4 import check_few_bits, few_bits_pipeline
from aoe.kernels.matmul.int8 import quantised_pipeline
from aoe.kernels.matmul.matrix_tiles import (
    PANELS_TILES,
    check_matrix_tiles,
    matrix_tiles_pipeline,
    matrix_tiles_space,
    matrix_tiles_steps,
)
from aoe.kernels.matmul.panels import panels_pipeline, rounded_weights_pipeline
from aoe.kernels.matmul.quantising import check_quantising
from aoe.kernels.matmul.shape import FEW_ROWS, MATRIX_PRODUCTS, MatrixProduct, read_product
from aoe.kernels.matmul.tiles import (
    FEW_BITS,
    PAIRS,
    PANELS,
    QUANTISED_PANELS,
    ROUNDED_WEIGHTS,
    algorithms_of,
    product_space,
    product_steps,
)
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Precision, Workload

_ALGORITHMS: Mapping[str, Callable[[MatrixProduct], Pipeline]] = {
    PANELS: panels_pipeline,
    PAIRS: pairs_pipeline,
    ROUNDED_WEIGHTS: rounded_weights_pipeline,
    PANELS_TILES: matrix_tiles_pipeline,
    QUANTISED_PANELS: quantised_pipeline,
    FEW_BITS: few_bits_pipeline,
}
_CHECKS: Mapping[Precision, Callable[[MatrixProduct], Support]] = {
    Precision.INT8: check_quantising,
    Precision.INT4: check_few_bits,
}
"""What integers cannot compute."""


class MatMul(PlannedFamily[MatrixProduct]):
    """y = chain(a * b), b constant for a few rows, anything for many.

    ONNX Runtime's product of many rows runs near the roof of the hardware: what gains there is
    the chain, which it leaves as passes of their own. A few rows are bound by memory: there the
    panels of the weights, read as several gapless streams, gain by themselves.
    """

    name = "matmul"
    anchors = MATRIX_PRODUCTS

    def plan(self, workload: Workload) -> MatrixProduct | Support:
        """Plan one matrix product and a chain, or tell why not."""
        product = read_product(workload)
        if isinstance(product, Support):
            return product
        check = _CHECKS.get(workload.precision)
        refused = check(product) if check is not None else SUPPORTED
        if not refused:
            return refused
        few = not product.rows or product.rows[-1].extent <= FEW_ROWS
        if few and not product.has_weights:
            return Support("a few rows by a computed matrix")
        return product

    def pipeline_of(self, plan: MatrixProduct, algorithm: str) -> Pipeline:
        """Return the algorithm called `algorithm`; by default the first of its precision."""
        name = algorithm or algorithms_of(plan)[0]
        return _ALGORITHMS[known_algorithm(self.name, name, _ALGORITHMS)](plan)

    def space_of(self, plan: MatrixProduct, target: KernelTarget) -> Space:
        """Return the register tile and what a task is; of matrix tiles where the CPU has them."""
        in_tiles = plan.workload.precision is Precision.BFLOAT16 and target.bf16_tiles
        if in_tiles and check_matrix_tiles(plan):
            return matrix_tiles_space(plan, target)
        return product_space(plan, target)

    def schedule_of(self, plan: MatrixProduct, values: Values, target: KernelTarget) -> Schedule:
        algorithm = str(values[KNOB])
        steps = matrix_tiles_steps if algorithm == PANELS_TILES else product_steps
        return Schedule(tuple(steps(values, plan, target)), algorithm=algorithm)
