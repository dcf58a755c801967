"""Modules whose forward stands behind a decorator that puts in arguments, as transformers' do."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.optimized_modules import optimize  # noqa: E402
from torch import nn  # noqa: E402

from aoe import FallbackWarning  # noqa: E402
from aoe.errors import AccuracyError, ModelImportError, OptionError  # noqa: E402
from aoe.torch.modules.calls import CallConvention, form_of  # noqa: E402


def configured(forward: Any) -> Any:
    """Give `scale` by name where the caller does not, as the module's configuration says."""

    @functools.wraps(forward)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("scale", self.configuration)
        return forward(self, *args, **kwargs)

    return wrapper


class Cache:
    """What generation goes on from; no tensor, no plain value."""


class Configured(nn.Module):
    """Takes everything by name, like the base models of transformers."""

    configuration = 3.0

    @configured
    def forward(
        self, x: Any = None, mask: Any = None, scale: float = 1.0, use_cache: bool = False
    ) -> Any:
        hidden = x * scale if mask is None else x * scale * mask
        return (hidden, Cache()) if use_cache else hidden


@pytest.fixture(autouse=True)
def _inference() -> Any:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("given", [0.0, -0.0, float("nan"), 1.5])
def test_numbers_are_equal_to_the_sign_of_a_zero(given: float) -> None:
    convention, x = CallConvention(lambda x, scale: x / scale), torch.ones(2)
    form = form_of(convention.flatten((x, given), {}), "division")
    accepted = [form.accepts(convention.flatten((x, n), {})) for n in (0.0, -0.0, float("nan"))]
    assert accepted == [str(given) == text for text in ("0.0", "-0.0", "nan")]


def test_an_argument_the_decorator_puts_in_is_given_once() -> None:
    module, x = Configured().eval(), torch.randn(2, 3)
    tuned = optimize(module, x)
    torch.testing.assert_close(tuned(x), x * 3)
    torch.testing.assert_close(tuned(x=x), x * 3)


@pytest.mark.slow
def test_positions_and_names_behind_a_decorator_are_the_same_call() -> None:
    module, x, mask = Configured().eval(), torch.randn(2, 3), torch.rand(2, 3)
    tuned = optimize(module, (x, mask), example_kwargs={"scale": 2.0})
    for found in (tuned(x, mask, scale=2.0), tuned(scale=2.0, mask=mask, x=x)):
        torch.testing.assert_close(found, x * 2 * mask)


@pytest.mark.slow
def test_a_default_the_decorator_overrides_is_not_taken_for_a_missing_argument() -> None:
    module, x = Configured().eval(), torch.randn(2, 3)
    tuned = optimize(module, x)
    with pytest.warns(FallbackWarning, match="tuned for other inputs"):
        torch.testing.assert_close(tuned(x, scale=1.0), x)


def test_a_result_that_is_a_cache_names_the_argument_that_turns_it_off() -> None:
    with pytest.raises(ModelImportError, match="returns a Cache") as caught:
        optimize(Configured().eval(), torch.randn(2, 3), example_kwargs={"use_cache": True})
    assert "'use_cache': False" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((1, 2), {}, ((1,), {"b": 2})),
        ((1,), {"d": 4, "b": 2}, ((1,), {"b": 2, "d": 4})),
        ((1, 2, 3), {}, ((1,), {"b": 2, "c": 3})),
        ((1,), {"z": 9, "c": 3, "y": 8}, ((1,), {"c": 3, "z": 9, "y": 8})),
        ((), {"c": 3, "a": 1}, ((1,), {"c": 3})),
    ],
)
def test_only_what_needs_a_position_has_one(args: Any, kwargs: Any, expected: Any) -> None:
    @functools.wraps(lambda a, b=0, c=0, *, d=0, **more: None)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    call = CallConvention(wrapper).flatten(args, kwargs)
    found = call.rebuild([])
    assert found == expected
    assert list(found[1]) == list(expected[1])


def test_what_comes_before_a_row_of_arguments_keeps_its_position() -> None:
    @functools.wraps(lambda a, b=0, *rest, c=0: None)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    call = CallConvention(wrapper).flatten((1, 2, 3, 4), {"c": 5})
    assert call.rebuild([]) == ((1, 2, 3, 4), {"c": 5})


@pytest.mark.slow
def test_an_encoder_that_leaves_padding_out_names_its_option() -> None:
    def encoder(nested: bool) -> nn.Module:
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        return nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested).eval()

    x, mask = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False, False, True, True, True]])
    with pytest.raises(AccuracyError) as caught:
        _without_torchs_note(encoder(True), x, mask)
    assert "enable_nested_tensor=False" in (caught.value.hint or "")
    assert _without_torchs_note(encoder(False), x, mask) is not None


def _without_torchs_note(module: nn.Module, x: Any, mask: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors", UserWarning)
        return optimize(module, x, example_kwargs={"src_key_padding_mask": mask})


def test_an_argument_of_the_module_given_as_an_option_is_told_its_place() -> None:
    with pytest.raises(OptionError, match=r"given as an option .got mask") as caught:
        optimize(Configured().eval(), torch.randn(2, 3), mask=torch.ones(2, 3))
    assert "example_kwargs={'mask': ...}" in (caught.value.hint or "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Bert", "Roberta", "Llama", "GPT2"])
def test_base_models_of_transformers_are_served(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=100,
        bos_token_id=0,
        eos_token_id=1,
        **({} if name == "GPT2" else {"intermediate_size": 64}),
    )
    module = getattr(transformers, f"{name}Model")(config).eval()
    ids = torch.randint(0, 90, (1, 12))
    tuned = optimize(module, ids, example_kwargs={"use_cache": False})
    found, expected = tuned(ids, use_cache=False), module(ids, use_cache=False)
    assert type(found) is type(expected)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
