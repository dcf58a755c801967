"""Twins: one trains with plain DDP, one with exchanged buckets, and not a bit may differ."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
import torch.distributed as dist
from bucket_sizes import bucket_sizes_bytes
from networks import WIDTH, Autocast, Branches, Mixed, OnceUnused, Words, chain, halved
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aoe.torch.ddp.buckets import (
    FixedReducer,
    bucket_indices,
    install_buckets,
    reduced_gradients,
)
from aoe.torch.ddp.ranks import Ranks
from aoe.torch.ddp.training import DdpTraining

BUILT_IN_HOOK = attrgetter("_register_builtin_comm_hook")
"""PyTorch has no public name for it."""


class ForgetfulReducer(FixedReducer):
    """Does often what a reducer does rarely."""

    forget_steps = 2


SAME: dict[str, dict[str, Any]] = {
    "plain": {"make": chain},
    "bucket_view": {"make": chain, "gradient_as_bucket_view": True},
    "bucket_view_kept": {"make": chain, "gradient_as_bucket_view": True, "keep_grads": True},
    "accumulate": {"make": chain, "accumulate": True},
    "accumulate_view": {"make": chain, "accumulate": True, "gradient_as_bucket_view": True},
    "unused": {"make": Branches, "find_unused_parameters": True},
    "unused_accumulate": {"make": Branches, "find_unused_parameters": True, "accumulate": True},
    "static": {"make": chain, "static_graph": True},
    "static_unused": {"make": OnceUnused, "static_graph": True},
    "static_view": {"make": chain, "static_graph": True, "gradient_as_bucket_view": True},
    "mixed": {"make": Mixed},
    "mixed_view": {"make": Mixed, "gradient_as_bucket_view": True},
    "mixed_static": {"make": Mixed, "static_graph": True},
    "sparse": {"make": Words},
    "autocast": {"make": Autocast},
    "hook": {"make": chain, "hook": True},
    "built_in_hook": {"make": chain, "built_in_hook": True},
    "measuring": {"make": chain, "lasting": False},
    "measuring_static": {"make": chain, "lasting": False, "static_graph": True},
    "older_torch": {"make": chain, "native": False},
    "older_torch_accumulate": {"make": chain, "native": False, "accumulate": True},
    "older_torch_static": {"make": OnceUnused, "native": False, "static_graph": True},
}


def same_as_ddp(
    make: Callable[[], nn.Module],
    *,
    accumulate: bool = False,
    keep_grads: bool = False,
    hook: bool = False,
    built_in_hook: bool = False,
    lasting: bool = True,
    native: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Train twins, one with exchanged buckets, and compare every step bit by bit."""
    how = {"fixed": ForgetfulReducer, "knows_caps": None if native else False}  # an older torch
    torch.manual_seed(0)
    plain = DistributedDataParallel(make(), **options)
    torch.manual_seed(0)
    tuned = DistributedDataParallel(make(), **options)
    twins = (plain, tuned)
    optimizers = [torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9) for twin in twins]
    for twin in twins:
        if hook:
            twin.register_comm_hook(None, halved)
        if built_in_hook:
            BUILT_IN_HOOK(twin)(dist.BuiltinCommHookType.FP16_COMPRESS)
    torch.manual_seed(100 + dist.get_rank())
    sizes = []
    for step in range(14):
        if step in (3, 7, 10):
            ordered = reduced_gradients(tuned)[::-1]
            ends = (*range(step % 4 + 1, len(ordered), 3), len(ordered))
            install_buckets(tuned, bucket_indices(ordered, ends), lasting=lasting, **how)
        value = torch.randn(5, WIDTH)
        losses = []
        for ddp in twins:
            if accumulate and step % 2:
                with ddp.no_sync():
                    ddp(value * 2).square().mean().backward()
            loss = ddp(value).square().mean()
            loss.backward()
            losses.append(loss.detach())
        difference = _difference(plain, tuned, losses)
        if difference:
            return {"difference": f"step {step}: {difference}"}
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=not keep_grads)
        sizes.append(bucket_sizes_bytes(tuned))
    return {"difference": "", "sizes": sizes, "kind": type(tuned.reducer).__name__}


def _difference(plain: Any, tuned: Any, losses: list[torch.Tensor]) -> str:
    if not torch.equal(losses[0], losses[1]):
        return f"loss {losses}"
    for (name, one), two in zip(plain.named_parameters(), tuned.parameters(), strict=True):
        if not torch.equal(one, two):
            return f"parameter {name}"
        if (one.grad is None) != (two.grad is None):
            return f"gradient of {name} is missing in one of them"
        if one.grad is not None and not torch.equal(_dense(one.grad), _dense(two.grad)):
            return f"gradient of {name}"
    return ""


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient


def same_caps() -> dict[str, Any]:
    """Train with DDP's own caps and with a reducer of ours that has the same buckets."""
    torch.manual_seed(0)
    plain = DistributedDataParallel(chain(), bucket_cap_mb=0.006)
    torch.manual_seed(0)
    tuned = DistributedDataParallel(chain(), bucket_cap_mb=0.006)
    twins = (plain, tuned)
    optimizers = [torch.optim.SGD(twin.parameters(), lr=0.05) for twin in twins]
    torch.manual_seed(100 + dist.get_rank())
    found = []
    training = DdpTraining(
        tuned,
        lambda: tuned(torch.ones(1, WIDTH)).sum().backward(),
        Ranks(None, tuned.device, timeout_s=None),
    )
    for step in range(12):
        value = torch.randn(5, WIDTH)
        if step == 3:
            training.record(4)
            tuned.zero_grad()
            install_buckets(tuned, training.buckets(None))
        losses = []
        for ddp in twins:
            loss = ddp(value).square().mean()
            loss.backward()
            losses.append(loss.detach())
        if step > 3:
            found.append(_difference(plain, tuned, losses))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step == 3:  # sums may differ in the last bit while the buckets do
            tuned.module.load_state_dict(plain.module.state_dict())
    return {
        "difference": "".join(found),
        "plain": bucket_sizes_bytes(plain),
        "tuned": bucket_sizes_bytes(tuned),
    }
