"""Every action on a model; the number of threads, which is no edit, is tried in `trying.py`."""

from __future__ import annotations

from aoe.advice.actions.activations import HARD_SWISH, RELU
from aoe.advice.actions.batches import BATCH_SPLIT
from aoe.advice.actions.channels import CHANNELS
from aoe.advice.actions.protocol import AdviceAction
from aoe.advice.actions.resizing import INTEGER_RESIZE
from aoe.advice.actions.rewriting import REWRITES

ACTIONS: tuple[AdviceAction, ...] = (
    CHANNELS,
    INTEGER_RESIZE,
    HARD_SWISH,
    RELU,
    REWRITES,
    BATCH_SPLIT,
)
