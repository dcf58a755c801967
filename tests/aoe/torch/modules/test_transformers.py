"""Common models of transformers, tiny and with random weights: exported, run and compared.

Skipped where transformers is not installed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import aoe.torch  # noqa: E402

_TEXT: dict[str, Any] = {"vocab_size": 99}


def _ids(length: int = 8) -> Any:
    return torch.arange(2 * length).reshape(2, length) % 99


def _bert() -> tuple[Any, dict[str, Any]]:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(**_TEXT, **sizes, intermediate_size=64)
    given = {"input_ids": _ids(), "attention_mask": torch.ones(2, 8, dtype=torch.long)}
    return transformers.BertModel(config), given


def _gpt2(*, use_cache: bool) -> tuple[Any, dict[str, Any]]:
    if use_cache:  # transformers' own way to make its cache a tree of tensors
        from transformers.integrations import executorch

        executorch.register_dynamic_cache_export_support()
    config = transformers.GPT2Config(
        **_TEXT, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": _ids(), "use_cache": use_cache}


def _vit() -> tuple[Any, dict[str, Any]]:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.ViTConfig(**sizes, intermediate_size=64, image_size=32, patch_size=8)
    return transformers.ViTModel(config), {"pixel_values": torch.rand(2, 3, 32, 32)}


def _whisper() -> tuple[Any, dict[str, Any]]:
    config = transformers.WhisperConfig(
        **_TEXT,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=20,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    given = {"input_features": torch.rand(2, 16, 40), "decoder_input_ids": _ids(4)}
    return transformers.WhisperModel(config), {**given, "use_cache": False}


def _llama() -> tuple[Any, dict[str, Any]]:
    config = transformers.LlamaConfig(
        **_TEXT,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": _ids(), "use_cache": False}


_MODELS: Mapping[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "bert": _bert,
    "gpt2": lambda: _gpt2(use_cache=False),
    "gpt2 with cache": lambda: _gpt2(use_cache=True),
    "vit": _vit,
    "whisper": _whisper,
    "llama": _llama,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _MODELS)
def test_model_is_exported_and_gives_what_pytorch_gives(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, given = _MODELS[name]()
    model = model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter
        tuned = aoe.torch.optimize(model, (), example_kwargs=given, bank=tmp_path, lookup_only=True)
        with torch.no_grad():
            expected, found = model(**given), tuned(**given)
    assert type(found) is type(expected) and list(found.keys()) == list(expected.keys())
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
