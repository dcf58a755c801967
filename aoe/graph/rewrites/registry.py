"""Every rewrite rule by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aoe.graph.rewrites.activations import (
    GELU_RULE,
    HARD_SIGMOID_RULE,
    HARD_SWISH_RULE,
    MISH_RULE,
    SILU_RULE,
    TANH_GELU_RULE,
)
from aoe.graph.rewrites.arithmetic import (
    MEAN_RULE,
    PLAIN_RESIZE_RULE,
    POWER_RULE,
    VOLUME_RESIZE_RULE,
)
from aoe.graph.rewrites.attention import (
    APART_RULE,
    MERGED_RULE,
    MULTI_HEAD_RULE,
    OPERATOR_RULE,
    TAKEN_RULE,
)
from aoe.graph.rewrites.channels import JOINED_RULE, SHUFFLE_RULE, SPLIT_RULE, WIDEN_RULE
from aoe.graph.rewrites.cleanup import CONSTANTS_RULE, DUPLICATES_RULE, IDLE_RULE, PAIRS_RULE
from aoe.graph.rewrites.convolution import BEFORE_RULE, BEHIND_RULE, GATE_RULE, TRANSPOSED_RULE
from aoe.graph.rewrites.layout import (
    INTO_RULE,
    LIFT_RULE,
    MIRRORED_PAD_RULE,
    SUNK_RULE,
    THROUGH_RULE,
    ZERO_PAD_RULE,
)
from aoe.graph.rewrites.normalization import (
    CHANNELS_RULE,
    GROUPS_RULE,
    LAYER_RULE,
    RMS_RULE,
)
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.graph.rewrites.spectra import DFT_RULE, DFT_STAGES_RULE, STFT_RULE, STFT_STAGES_RULE
from aoe.graph.rewrites.waves import WAVE_CONVOLUTION_RULE, WAVE_SYNTHESIS_RULE

_ALL = (
    SPLIT_RULE,
    JOINED_RULE,
    BEFORE_RULE,
    BEHIND_RULE,
    GATE_RULE,
    MEAN_RULE,
    SHUFFLE_RULE,
    WIDEN_RULE,
    LIFT_RULE,
    TRANSPOSED_RULE,
    ZERO_PAD_RULE,
    MIRRORED_PAD_RULE,
    MULTI_HEAD_RULE,
    OPERATOR_RULE,
    APART_RULE,
    MERGED_RULE,
    TAKEN_RULE,
    GELU_RULE,
    TANH_GELU_RULE,
    SILU_RULE,
    MISH_RULE,
    HARD_SWISH_RULE,
    HARD_SIGMOID_RULE,
    LAYER_RULE,
    CHANNELS_RULE,
    RMS_RULE,
    GROUPS_RULE,
    DFT_STAGES_RULE,
    STFT_STAGES_RULE,
    DFT_RULE,
    STFT_RULE,
    WAVE_CONVOLUTION_RULE,
    WAVE_SYNTHESIS_RULE,
    POWER_RULE,
    PLAIN_RESIZE_RULE,
    VOLUME_RESIZE_RULE,
    THROUGH_RULE,
    SUNK_RULE,
    INTO_RULE,
    CONSTANTS_RULE,
    DUPLICATES_RULE,
    PAIRS_RULE,
    IDLE_RULE,
)

RULES: Mapping[str, RewriteRule] = MappingProxyType({rule.name: rule for rule in _ALL})

ONLY_AT_O1: frozenset[str] = frozenset(
    {
        "attention-apart",
        "attention-multi-head",
        "attention-operator",
        "batch-norm-into-makers",
        "batch-norm-into-next",
        "constants-folded",
        "duplicates-merged",
        "gelu-tanh",
        "group-norm",
        "hard-sigmoid",
        "hard-swish",
        "joined-projection-split",
        "layer-norm",
        "layer-norm-of-channels",
        "mean-to-global-pool",
        "mirrored-pad-as-gather",
        "mish",
        "nothing-done",
        "pad-into-window",
        "pairs-joined",
        "power-as-product",
        "projections-merged",
        "resize-volume-as-images",
        "rms-norm",
        "transpose-behind-elementwise",
        "transpose-into-product",
        "transpose-through-reshape",
        "transposed-to-pixel-shuffle",
    }
)
"""Rules no search tries unless `--tune_optimization_level O1` asks for all of them: what they make
is no faster than what they find, by ONNX Runtime or with kernels for both. Records that name them
are used at any level. Source: benchmarks/results/rewrites.json and rewrites-on-kernels.json."""
