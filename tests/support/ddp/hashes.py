"""How a bank tells models under DistributedDataParallel apart."""

from __future__ import annotations

import torch

from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.training import DdpTraining


def hash_in_ddp(module: torch.nn.Module) -> int:
    """Return the modelhash of a module's gradients, as a bank has it."""
    ddp = torch.nn.parallel.DistributedDataParallel(module)
    return DdpTraining(ddp, lambda: None, Ranks(None, ddp.device, timeout_s=None)).model_hash
