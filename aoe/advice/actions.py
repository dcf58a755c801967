"""Every action on a model, and what actions are called.

Two are no edits of it: the number of threads (`threads.py`) and the precision (`precision.py`).
"""

from __future__ import annotations

from aoe.advice.batches import BATCH_SPLIT, LARGER_BATCH
from aoe.advice.channels import CHANNELS
from aoe.advice.precision import PRECISION_ACTION
from aoe.advice.proposals import (
    CONSTANTS,
    EQUAL_RULES,
    NEWER_OPSET,
    REWRITES,
    AdviceAction,
    action_of,
)
from aoe.advice.resizing import INTEGER_RESIZE
from aoe.advice.threads import THREADS_ACTION
from aoe.graph.rewrites.inexact import INEXACT

ACTIONS: tuple[AdviceAction, ...] = (
    CHANNELS,
    INTEGER_RESIZE,
    *map(action_of, INEXACT),
    CONSTANTS,
    REWRITES,
    NEWER_OPSET,
    BATCH_SPLIT,
    LARGER_BATCH,
)
ACTION_NAMES = frozenset(
    {action.name for action in ACTIONS if action is not REWRITES}
    | {rule.name for rule in EQUAL_RULES}
    | {PRECISION_ACTION, THREADS_ACTION}
)
"""Those `--action` takes; each rewrite rule is one."""
