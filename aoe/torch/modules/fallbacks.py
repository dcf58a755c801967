"""Why PyTorch computes instead of a tuned model, and how often it has."""

from __future__ import annotations

import threading
from collections import Counter
from enum import StrEnum


class Fallback(StrEnum):
    """Why a call of an optimized module is computed by PyTorch."""

    GRADIENTS = "gradients are wanted"
    TANGENTS = "a forward-mode derivative is wanted"
    TRANSFORM = "a transform of torch.func is at work"
    DISPATCH_MODE = "a mode watches every operator"
    AUTOCAST = "autocast is on"
    FORK = "this is a forked process"
    INPUTS = "other inputs"
    LAYOUTS = "too many layouts"
    STATE = "the module has changed"
    FAILURE = "the tuned model failed"


class FallbackCounts:
    """Calls of one module that PyTorch computed, by reason; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Fallback] = Counter()

    def add(self, reason: Fallback) -> bool:
        """Count a call; return True for the first of all."""
        with self._lock:
            self._counts[reason] += 1
            return self._counts.total() == 1

    def by_reason(self) -> Counter[str]:
        """Return the number of calls for each reason, in words."""
        with self._lock:
            return Counter({reason.value: count for reason, count in self._counts.items()})
