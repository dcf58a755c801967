"""Attention as one kernel."""

from __future__ import annotations

from aoe.kernels.attention.few_queries import (
    few_queries_pipeline,
    few_queries_space,
    few_queries_steps,
)
from aoe.kernels.attention.shape import read_attention
from aoe.kernels.attention.stages import attention_pipeline
from aoe.kernels.attention.tiles import attention_space, attention_steps
from aoe.kernels.family import KernelTarget, Pipeline, Support, support_of, supported
from aoe.kernels.matmul.shape import MATRIX_PRODUCTS
from aoe.kernels.matmul.tiles import PAIRS
from aoe.schedule import Configuration, Schedule, Space
from aoe.workload import Workload


class AttentionFamily:
    """y = softmax(chain(queries * keys)) * values.

    ONNX Runtime writes all scores to memory, reads and writes them for the softmax, and reads them
    again. Here the scores of a few queries stay in the caches until their values are summed up.
    Keys and values are packed, unless there are only a few queries at all.
    """

    name = "attention"
    anchors = MATRIX_PRODUCTS

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is two matrix products with a softmax between them."""
        return support_of(read_attention(workload))

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the only algorithm there is in a precision."""
        attention = supported(workload, read_attention(workload))
        pipeline = few_queries_pipeline if attention.is_few else attention_pipeline
        return pipeline(attention)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return register tiles and what a task is."""
        attention = supported(workload, read_attention(workload))
        space = few_queries_space if attention.is_few else attention_space
        return space(attention, target)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        attention = supported(workload, read_attention(workload))
        steps_of = few_queries_steps if attention.is_few else attention_steps
        steps = tuple(steps_of(configuration, attention, target))
        return Schedule(steps, algorithm=PAIRS if attention.in_pairs else "")
