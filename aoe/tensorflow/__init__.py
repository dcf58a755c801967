"""Tuning from inside TensorFlow: `aoe.tensorflow.enable()`, or `python -m aoe.tensorflow SCRIPT`.

It runs in the Python of the script, which needs TensorFlow and this package without any of its
extras; the engine may be elsewhere (`AOE_ENGINE_PYTHON`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aoe.tensorflow.watching import Watcher, enable

__all__ = ["Watcher", "enable"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'aoe.tensorflow' has no attribute {name!r}")
    from aoe.tensorflow import watching

    return getattr(watching, name)
