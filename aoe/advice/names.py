"""What actions are called."""

from __future__ import annotations

from aoe.advice.actions.registry import ACTIONS
from aoe.advice.actions.rewriting import REWRITES
from aoe.advice.precision import PRECISION_ACTION
from aoe.advice.threads import THREADS_ACTION
from aoe.graph.rewrites.registry import RULES

ACTION_NAMES = frozenset(
    {action.name for action in ACTIONS if action is not REWRITES}
    | {rule.name for rule in RULES.values() if not rule.is_done_anyway}
    | {PRECISION_ACTION, THREADS_ACTION}
)
"""Those `--action` takes; each rewrite rule is one."""
