"""FSDP is no DDP: its gradients are sharded, there are no buckets to exchange."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aoe.errors import OptionError

_FSDP = "torch.distributed.fsdp"


def sharded_model(name: str) -> OptionError:
    """Return the error about a model whose gradients FSDP reduces, by the name of its class."""
    return OptionError(
        "model",
        "FSDP shards gradients and reduces them itself: there are no buckets to tune",
        got=name,
        expected="torch.nn.parallel.DistributedDataParallel",
        hint="run the script without aoe, or train with DistributedDataParallel",
    )


def is_sharded(model: Any) -> bool:
    """True if FSDP, of either generation, has a model."""
    fsdp = sys.modules.get(_FSDP)
    return fsdp is not None and isinstance(model, (fsdp.FullyShardedDataParallel, fsdp.FSDPModule))


@contextmanager
def refused_sharding() -> Iterator[None]:
    """Refuse what shards its model meanwhile, when it does so and not hours later.

    Raises:
        OptionError: a model was given to `FullyShardedDataParallel` or `fully_shard`.
    """
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    construct = FullyShardedDataParallel.__init__

    def refuse_wrapper(wrapper: Any, module: Any, *arguments: Any, **options: Any) -> None:
        raise sharded_model(f"FullyShardedDataParallel of {type(module).__name__}")

    def refuse_class(made: type[Any], /, **options: Any) -> None:
        # fully_shard makes such a class of every class it is given
        raise sharded_model(made.__name__)

    FullyShardedDataParallel.__init__ = refuse_wrapper
    FSDPModule.__init_subclass__ = classmethod(refuse_class)
    try:
        yield
    finally:
        FullyShardedDataParallel.__init__ = construct
        del FSDPModule.__init_subclass__
