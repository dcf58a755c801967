"""Results lie in memory as PyTorch lays them, which depends on how the arguments lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from aoe.torch.modules.calls import FlatCall

Strides = tuple[int, ...]
MOST_LAYOUTS = 64
"""Ways of arguments to lie that are remembered; each is learnt from one call PyTorch computes."""


class ResultLayouts:
    """Strides of the results for the strides of the arguments, as PyTorch was seen to give them.

    Args:
        known: Strides of the results, by those of the tensors of a call.
    """

    def __init__(self, known: Mapping[tuple[Strides, ...], tuple[Strides, ...]]) -> None:
        self.known = dict(known)

    @property
    def is_full(self) -> bool:
        """Whether so many ways are known that no other is learnt."""
        return len(self.known) >= MOST_LAYOUTS

    def knows(self, call: FlatCall) -> bool:
        """Return True if PyTorch was seen to compute a call with such strides."""
        return _of_call(call) in self.known

    def learn(self, call: FlatCall, results: Sequence[torch.Tensor]) -> None:
        """Remember how PyTorch's own results of a call lie in memory."""
        self.known[_of_call(call)] = tuple(result.stride() for result in results)

    def lay(self, results: Sequence[torch.Tensor], call: FlatCall) -> list[torch.Tensor]:
        """Return contiguous results with the strides PyTorch gives them; known ones only."""
        return list(map(_laid, results, self.known[_of_call(call)]))


def _of_call(call: FlatCall) -> tuple[Strides, ...]:
    return tuple([tensor.stride() for tensor in call.tensors])


def _laid(result: torch.Tensor, strides: Strides) -> torch.Tensor:
    if result.stride() == strides:
        return result
    laid = torch.empty_strided(result.shape, strides, dtype=result.dtype)
    if laid.is_contiguous():  # other numbers for dimensions of one element
        return result.as_strided(result.shape, strides)
    if torch.ops.aten.is_non_overlapping_and_dense(laid):
        return laid.copy_(result)
    laid.numpy()[...] = result.numpy()  # as of `expand`: many indices are one place
    return laid
