"""Matrix products with the chain behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, Support, supported
from aoe.kernels.matmul.matrix_tiles import (
    PANELS_TILES,
    check_matrix_tiles,
    matrix_tiles_pipeline,
    matrix_tiles_space,
    matrix_tiles_steps,
)
from aoe.kernels.matmul.panels import panels_pipeline
from aoe.kernels.matmul.shape import MATRIX_PRODUCTS, MatrixProduct, read_product
from aoe.kernels.matmul.tiles import product_space, product_steps
from aoe.schedule import Configuration, Schedule, Space
from aoe.workload import Workload

PANELS = "panels"
_ALGORITHMS: Mapping[str, Callable[[MatrixProduct], Pipeline]] = {
    PANELS: panels_pipeline,
    PANELS_TILES: matrix_tiles_pipeline,
}


class MatMul:
    """y = chain(x * w), w constant, for any number of rows.

    ONNX Runtime's product of many rows runs near the roof of the hardware: what gains there is
    the chain, which it leaves as passes of their own. A few rows are bound by memory: there the
    panels of the weights, read as several gapless streams, gain by themselves.
    """

    name = "matmul"
    anchors = MATRIX_PRODUCTS

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is one matrix product by constant weights and a chain."""
        product = read_product(workload)
        if isinstance(product, Support):
            return product
        if not product.has_weights:
            return Support("product of two computed tensors")
        return check_matrix_tiles(product) if workload.precision.is_lower else SUPPORTED

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the algorithm called `algorithm`; by default the one of the precision."""
        name = algorithm or (PANELS_TILES if workload.precision.is_lower else PANELS)
        if name not in _ALGORITHMS:
            known = ", ".join(_ALGORITHMS)
            raise ValueError(f"matmul: no such algorithm (got {name}, expected {known})")
        return _ALGORITHMS[name](supported(workload, read_product(workload)))

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return the register tile and what a task is."""
        product = supported(workload, read_product(workload))
        if not workload.precision.is_lower:
            return product_space(product, target)
        space = matrix_tiles_space(product, target)
        return space if target.bf16_tiles else replace(space, first_guesses=())

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        product = supported(workload, read_product(workload))
        if configuration.get(KNOB) == PANELS_TILES:
            steps = matrix_tiles_steps(configuration, product, target)
            return Schedule(tuple(steps), algorithm=PANELS_TILES)
        return Schedule(tuple(product_steps(configuration, product, target)), algorithm=PANELS)
