"""Tuning from inside PyTorch. Needs the extra `torch`: `pip install 'aoebank[torch]'`.

Names are imported on first use, so `import aoe.torch` does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aoe.errors import EngineNotInstalledError
from aoe.torch.script_mode import begin_in_script

if TYPE_CHECKING:
    from aoe.torch.collecting.collect import set_aoe
    from aoe.torch.ddp.gradients import apply_gradient_strategy, tune_gradients
    from aoe.torch.ddp.script_run import TrainingScript
    from aoe.torch.model_files.model_run import TrainingModel
    from aoe.torch.modules.compiled import fallbacks
    from aoe.torch.modules.optimization import optimize
    from aoe.torch.process_options import set_option

__all__ = [
    "TrainingModel",
    "TrainingScript",
    "apply_gradient_strategy",
    "fallbacks",
    "optimize",
    "set_aoe",
    "set_option",
    "tune_gradients",
]

_HOMES = {
    "TrainingModel": "model_files.model_run",
    "TrainingScript": "ddp.script_run",
    "apply_gradient_strategy": "ddp.gradients",
    "fallbacks": "modules.compiled",
    "optimize": "modules.optimization",
    "set_aoe": "collecting.collect",
    "set_option": "process_options",
    "tune_gradients": "ddp.gradients",
}
begin_in_script()  # which may ask for tuning with AOE_MODE, or call set_aoe behind its steps


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'aoe.torch' has no attribute {name!r}")
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise EngineNotInstalledError(
            f"aoe.torch.{name}",
            "PyTorch is not installed",
            hint="python -m pip install 'aoebank[torch]'",
        ) from error
    return getattr(import_module(f"aoe.torch.{_HOMES[name]}"), name)
