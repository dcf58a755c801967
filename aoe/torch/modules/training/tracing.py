"""Operators that stay whole when a training graph is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_KEYS = (
    torch._C.DispatchKey.Autograd,
    torch._C.DispatchKey.AutogradCPU,
    torch._C.DispatchKey.CompositeImplicitAutograd,
)


@contextmanager
def whole_upsampling() -> Iterator[None]:
    """Trace upsampling as the operators eager calls.

    PyTorch has Python kernels for these, which take them apart into indices. The gradient would add
    up element by element then. A PyTorch that keeps its kernels elsewhere traces as it likes.
    """
    taken = []
    for name in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "bicubic2d"):
        packet = getattr(torch.ops.aten, f"upsample_{name}")
        for overload in (getattr(packet, one) for one in packet.overloads()):
            if not hasattr(overload, "py_kernels") or not hasattr(overload, "_dispatch_cache"):
                continue
            taken += [
                (overload, key, overload.py_kernels.pop(key))
                for key in _KEYS
                if key in overload.py_kernels
            ]
            overload._dispatch_cache.clear()
    try:
        yield
    finally:
        for overload, key, kernel in taken:
            overload.py_kernels[key] = kernel
            overload._dispatch_cache.clear()
