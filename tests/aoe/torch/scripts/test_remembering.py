"""The first step of a script is remembered: each call that differs in what counts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aoe.torch.scripts.remembering import FirstStep  # noqa: E402


class _Net(torch.nn.Linear):  # type: ignore[misc]
    def forward(self, x: Any, *, twice: bool = False, halved: bool = False) -> Any:
        return super().forward(x) * (1 + twice) / (1 + halved)


def test_call_of_training_is_remembered_beside_one_without_gradients() -> None:
    net, step = _Net(4, 4), FirstStep()
    step.start()
    try:
        with torch.no_grad():
            net(torch.ones(2, 4))
        for _ in range(2):
            net(torch.ones(2, 4))
        net(torch.ones(2, 4), twice=True)
        net(torch.ones(2, 4), halved=True)
    finally:
        step.close()
    assert [one.wants_gradients for one in step.calls] == [False, True, True, True]
    assert [list(one.arguments()[1]) for one in step.calls[2:]] == [["twice"], ["halved"]]
