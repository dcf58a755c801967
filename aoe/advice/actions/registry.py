"""Every action on a model.

Two are no edits of it: the number of threads (`threads.py`) and the precision (`precision.py`).
"""

from __future__ import annotations

from aoe.advice.actions.activations import HARD_SWISH, RELU
from aoe.advice.actions.batches import BATCH_SPLIT, LARGER_BATCH
from aoe.advice.actions.channels import CHANNELS
from aoe.advice.actions.constants import CONSTANTS
from aoe.advice.actions.normalization import BATCH_NORMS, ROOT_MEANS
from aoe.advice.actions.opsets import NEWER_OPSET
from aoe.advice.actions.protocol import AdviceAction
from aoe.advice.actions.resizing import INTEGER_RESIZE
from aoe.advice.actions.rewriting import REWRITES

ACTIONS: tuple[AdviceAction, ...] = (
    CHANNELS,
    INTEGER_RESIZE,
    HARD_SWISH,
    RELU,
    ROOT_MEANS,
    BATCH_NORMS,
    CONSTANTS,
    REWRITES,
    NEWER_OPSET,
    BATCH_SPLIT,
    LARGER_BATCH,
)
