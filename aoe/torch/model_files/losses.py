"""The loss operators of ONNX for `onnx2torch`, which has none."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

_VERSIONS = (12, 13)


class _Loss(nn.Module):  # type: ignore[misc]
    """One of the two loss operators.

    Args:
        takes_scores: True where log-softmax comes first.
        reduction: How the losses of single labels become one.
        ignore_index: Label that does not count.
        results: How many are asked for: the loss, and the logarithms of the probabilities.
    """

    def __init__(
        self, *, takes_scores: bool, reduction: str, ignore_index: int, results: int
    ) -> None:
        super().__init__()
        self._takes_scores = takes_scores
        self._reduction = reduction
        self._ignore_index = ignore_index
        self._results = results

    def forward(
        self, scores: torch.Tensor, labels: torch.Tensor, weight: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of scores [N, C, ...] and labels [N, ...]."""
        logarithms = scores.log_softmax(1) if self._takes_scores else scores
        loss = functional.nll_loss(
            logarithms,
            labels.long(),
            weight,
            ignore_index=self._ignore_index,
            reduction=self._reduction,
        )
        return loss if self._results == 1 else (loss, logarithms)


def register_losses() -> None:
    """Make both operators known to `onnx2torch`; a second time changes nothing."""
    from onnx2torch.node_converters.registry import _CONVERTER_REGISTRY, add_converter
    from onnx2torch.utils.common import OperationConverterResult, onnx_mapping_from_node

    def convert(node: Any, graph: Any) -> Any:
        attributes = node.attributes
        module = _Loss(
            takes_scores=node.operation_type == "SoftmaxCrossEntropyLoss",
            reduction=attributes.get("reduction", "mean"),
            ignore_index=attributes.get("ignore_index", -100),
            results=len(node.output_values),
        )
        return OperationConverterResult(
            torch_module=module, onnx_mapping=onnx_mapping_from_node(node=node)
        )

    known = {description.operation_type for description in _CONVERTER_REGISTRY}
    for kind in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        if kind not in known:
            for version in _VERSIONS:
                add_converter(operation_type=kind, version=version)(convert)
