"""Networks of timm and transformers as scripts train them: random weights, small inputs, dropout.

Both libraries are imported where a network is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from networks.trained import Batch, Training, classified
from torch import Tensor, nn

_WORDS, _LENGTH, _ROWS, _WIDTH, _DEPTH, _HEADS = 120, 32, 4, 64, 2, 4
_DROPOUT = 0.1


# ---- images, of timm ----


def _images(name: str, size: int = 64, **options: Any) -> Training:
    import timm

    module = timm.create_model(name, num_classes=10, drop_rate=_DROPOUT, **options)

    def draw() -> Batch:
        return torch.randn(_ROWS, 3, size, size), torch.randint(0, 10, (_ROWS,))

    return Training(module=module, draw=draw, loss=classified)


_PATHS = {"drop_path_rate": _DROPOUT}
_TINY_VIT = {"img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 3, **_PATHS}
_TINY_SWIN = {"img_size": 64, "window_size": 4, "embed_dim": 48, "depths": (1, 1, 2, 1)} | {
    "num_heads": (2, 4, 8, 16),
    **_PATHS,
}


# ---- words, of transformers ----


def _loss(names: tuple[str, ...], module: nn.Module, batch: Batch) -> Tensor:
    found: Tensor = module(**dict(zip(names, batch, strict=True))).loss
    return found


def _words(head: str, config: str, options: Mapping[str, Any], *, masked: bool = False) -> Training:
    """Return a language model: tokens and labels, with a mask of what is no padding or without."""
    import transformers

    module = getattr(transformers, head)(getattr(transformers, config)(**options))
    names = ("input_ids", "labels", *(("attention_mask",) if masked else ()))

    def draw() -> Batch:
        tokens, labels = (torch.randint(3, _WORDS, (_ROWS, _LENGTH)) for _ in range(2))
        if not masked:
            return tokens, labels
        mask = torch.ones(_ROWS, _LENGTH, dtype=torch.long)
        mask[0, _LENGTH // 2 :] = 0
        return tokens, labels, mask

    return Training(module=module, draw=draw, loss=partial(_loss, names))


def _speech(options: Mapping[str, Any]) -> Training:
    import transformers

    module = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**options))

    def draw() -> Batch:
        return torch.randn(_ROWS, 16, 2 * _LENGTH), torch.randint(3, _WORDS, (_ROWS, _LENGTH // 2))

    return Training(module=module, draw=draw, loss=partial(_loss, ("input_features", "labels")))


_ENCODER = (
    {"vocab_size": _WORDS, "hidden_size": _WIDTH, "num_hidden_layers": _DEPTH}
    | {"num_attention_heads": _HEADS, "intermediate_size": 2 * _WIDTH}
    | {"hidden_dropout_prob": _DROPOUT, "attention_probs_dropout_prob": _DROPOUT}
)
_DISTIL = {"vocab_size": _WORDS, "dim": _WIDTH, "n_layers": _DEPTH, "n_heads": _HEADS} | {
    "hidden_dim": 2 * _WIDTH,
    "dropout": _DROPOUT,
    "attention_dropout": _DROPOUT,
}
_GPT2 = {"vocab_size": _WORDS, "n_embd": _WIDTH, "n_layer": _DEPTH, "n_head": _HEADS} | {
    "n_positions": _LENGTH,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "use_cache": False,
}
_T5 = (
    {"vocab_size": _WORDS, "d_model": _WIDTH, "d_kv": _WIDTH // _HEADS, "d_ff": 2 * _WIDTH}
    | {"num_layers": _DEPTH, "num_heads": _HEADS, "dropout_rate": _DROPOUT, "use_cache": False}
    | {"feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}
)
_LLAMA = (
    {"vocab_size": _WORDS, "hidden_size": _WIDTH, "num_hidden_layers": _DEPTH}
    | {"num_attention_heads": _HEADS, "num_key_value_heads": _HEADS // 2, "use_cache": False}
    | {"intermediate_size": 2 * _WIDTH, "attention_dropout": _DROPOUT}
)
_WHISPER = (
    {"vocab_size": _WORDS, "d_model": _WIDTH, "num_mel_bins": 16, "use_cache": False}
    | {"encoder_layers": _DEPTH, "decoder_layers": _DEPTH}
    | {"encoder_attention_heads": _HEADS, "decoder_attention_heads": _HEADS}
    | {"encoder_ffn_dim": 2 * _WIDTH, "decoder_ffn_dim": 2 * _WIDTH, "dropout": _DROPOUT}
    | {"max_source_positions": _LENGTH, "max_target_positions": _LENGTH}
    | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
)

PUBLISHED: dict[str, tuple[str, Callable[[], Training]]] = {
    "resnet18": ("ResNet-18", partial(_images, "resnet18", 32, **_PATHS)),
    "resnetv2": ("ResNet-18 v2", partial(_images, "resnetv2_18", 32, **_PATHS)),
    "mobilenetv3": ("MobileNetV3", partial(_images, "mobilenetv3_small_050", **_PATHS)),
    "efficientnet_b0": ("EfficientNet-B0", partial(_images, "efficientnet_b0", **_PATHS)),
    "regnety": ("RegNetY-002", partial(_images, "regnety_002", **_PATHS)),
    "convnext": ("ConvNeXt-atto", partial(_images, "convnext_atto", **_PATHS)),
    "vit": ("ViT, 2 blocks", partial(_images, "vit_tiny_patch16_224", **_TINY_VIT)),
    "deit": ("DeiT, 2 blocks", partial(_images, "deit_tiny_distilled_patch16_224", **_TINY_VIT)),
    "swin": ("Swin, 5 blocks", partial(_images, "swin_tiny_patch4_window7_224", **_TINY_SWIN)),
    "mixer": ("MLP-Mixer-S", partial(_images, "mixer_s32_224", img_size=64, **_PATHS)),
    "poolformer": ("PoolFormer-S12", partial(_images, "poolformer_s12", **_PATHS)),
    "ghostnet": ("GhostNet", partial(_images, "ghostnet_050")),
    "bert": ("BERT, 2 layers", partial(_words, "BertForMaskedLM", "BertConfig", _ENCODER)),
    "distilbert": (
        "DistilBERT, 2 layers",
        partial(_words, "DistilBertForMaskedLM", "DistilBertConfig", _DISTIL, masked=True),
    ),
    "roberta": (
        "RoBERTa, 2 layers",
        partial(_words, "RobertaForMaskedLM", "RobertaConfig", _ENCODER, masked=True),
    ),
    "albert": (
        "ALBERT, 2 layers",
        partial(_words, "AlbertForMaskedLM", "AlbertConfig", {**_ENCODER, "embedding_size": 32}),
    ),
    "gpt2": ("GPT-2, 2 layers", partial(_words, "GPT2LMHeadModel", "GPT2Config", _GPT2)),
    "t5": (
        "T5, 2 + 2 layers",
        partial(_words, "T5ForConditionalGeneration", "T5Config", _T5, masked=True),
    ),
    "llama": ("LLaMA, 2 layers", partial(_words, "LlamaForCausalLM", "LlamaConfig", _LLAMA)),
    "whisper": ("Whisper, 2 + 2 layers", partial(_speech, _WHISPER)),
}
"""By name: the title, and what makes it."""
