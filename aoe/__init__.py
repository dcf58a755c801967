"""An open AOE: tunes models for the hardware they run on and remembers what it learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aoe.om.loading import FallbackWarning, OfflineModel, load

__all__ = ["FallbackWarning", "OfflineModel", "load"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: the command line starts without them."""
    if name in __all__:
        from aoe.om import loading

        return getattr(loading, name)
    raise AttributeError(f"module 'aoe' has no attribute {name!r}")
