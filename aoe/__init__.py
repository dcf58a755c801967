"""An open AOE: tunes models for the hardware they run on and remembers what it learned."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aoe.errors import FallbackWarning
    from aoe.om.loading import OfflineModel, load
    from aoe.online.session import InferenceSession
    from aoe.runs.run import TuneResult, tune
    from aoe.runs.verify_bank import verify
    from aoe.runs.verify_records import VerifiedBank
    from aoe.tuner.progress import ProgressEvent

__all__ = [
    "FallbackWarning",
    "InferenceSession",
    "OfflineModel",
    "ProgressEvent",
    "TuneResult",
    "VerifiedBank",
    "load",
    "tune",
    "verify",
]

_HOMES = {
    "FallbackWarning": "errors",
    "InferenceSession": "online.session",
    "OfflineModel": "om.loading",
    "ProgressEvent": "tuner.progress",
    "TuneResult": "runs.run",
    "VerifiedBank": "runs.verify_records",
    "load": "om.loading",
    "tune": "runs.run",
    "verify": "runs.verify_bank",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: the command line starts without them."""
    if name not in _HOMES:
        raise AttributeError(f"module 'aoe' has no attribute {name!r}")
    return getattr(import_module(f"aoe.{_HOMES[name]}"), name)
