"""Attention as one kernel."""

from __future__ import annotations

from aoe.kernels.attention.few_queries import (
    few_queries_pipeline,
    few_queries_space,
    few_queries_steps,
)
from aoe.kernels.attention.moves import with_views
from aoe.kernels.attention.open_extents import OPEN, opened, with_open_dimensions
from aoe.kernels.attention.shape import Attention, read_attention
from aoe.kernels.attention.stages import attention_pipeline
from aoe.kernels.attention.tiles import attention_space, attention_steps
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.matmul.shape import MATRIX_PRODUCTS
from aoe.kernels.matmul.tiles import PAIRS
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Workload


class AttentionFamily(PlannedFamily[Attention]):
    """y = softmax(chain(queries * keys)) * values.

    ONNX Runtime writes all scores to memory, reads and writes them for the softmax, and reads them
    again. Here the scores of a few queries stay in the caches until their values are summed up.
    Keys and values are packed, unless there are only a few queries at all.
    """

    name = "attention"
    anchors = MATRIX_PRODUCTS

    def plan(self, workload: Workload) -> Attention | Support:
        """Plan two matrix products with a softmax between them, or tell why not."""
        return read_attention(workload)

    def pipeline_of(self, plan: Attention, algorithm: str) -> Pipeline:
        """Return the only algorithm there is in a precision, or the same for open extents."""
        pipeline = few_queries_pipeline if plan.is_few else attention_pipeline
        if plan.views:
            return _where_it_lies(plan, pipeline(plan))
        if algorithm != OPEN:
            return pipeline(plan)
        plan = opened(plan)
        return with_open_dimensions(plan, pipeline(plan))

    def space_of(self, plan: Attention, target: KernelTarget) -> Space:
        """Return register tiles and what a task is."""
        space = few_queries_space if plan.is_few else attention_space
        return space(plan, target)

    def schedule_of(self, plan: Attention, values: Values, target: KernelTarget) -> Schedule:
        steps_of = few_queries_steps if plan.is_few else attention_steps
        steps = tuple(steps_of(values, plan, target))
        return Schedule(steps, algorithm=PAIRS if plan.in_pairs else "")


def _where_it_lies(plan: Attention, pipeline: Pipeline) -> Pipeline:
    """Return a pipeline that reads and writes heads where moves around it would."""
    inputs = range(len(plan.views) - 1)
    result = tuple(reversed(range(len(plan.values.iteration.axes))))
    return with_views(pipeline, plan.views, [*map(plan.dimensions, inputs), result])
