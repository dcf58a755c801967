"""Every rewrite rule by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aoe.graph.rewrites.arithmetic.means import MEAN_RULE
from aoe.graph.rewrites.arithmetic.powers import POWER_RULE
from aoe.graph.rewrites.arithmetic.resized import PLAIN_RESIZE_RULE, VOLUME_RESIZE_RULE
from aoe.graph.rewrites.arithmetic.spectra import DFT_RULE, STFT_RULE
from aoe.graph.rewrites.arithmetic.staged import DFT_STAGES_RULE, STFT_STAGES_RULE
from aoe.graph.rewrites.arithmetic.waves import WAVE_CONVOLUTION_RULE, WAVE_SYNTHESIS_RULE
from aoe.graph.rewrites.attention.fused import APART_RULE, MULTI_HEAD_RULE, OPERATOR_RULE
from aoe.graph.rewrites.attention.projections import MERGED_RULE, TAKEN_RULE
from aoe.graph.rewrites.cleanup.folded import CONSTANTS_RULE
from aoe.graph.rewrites.cleanup.identity_elimination import DUPLICATES_RULE, IDLE_RULE
from aoe.graph.rewrites.cleanup.inverse_pairs import PAIRS_RULE
from aoe.graph.rewrites.convolution.batch_split import SPLIT_RULE
from aoe.graph.rewrites.convolution.concat_merged import JOINED_RULE
from aoe.graph.rewrites.convolution.normalized import BEFORE_RULE, BEHIND_RULE
from aoe.graph.rewrites.convolution.padded_channels import WIDEN_RULE
from aoe.graph.rewrites.convolution.shuffled import SHUFFLE_RULE
from aoe.graph.rewrites.convolution.squeeze_excite import GATE_RULE
from aoe.graph.rewrites.convolution.transposed import TRANSPOSED_RULE
from aoe.graph.rewrites.layout.hoisted import LIFT_RULE
from aoe.graph.rewrites.layout.layout_change import INTO_RULE, SUNK_RULE, THROUGH_RULE
from aoe.graph.rewrites.layout.padded import MIRRORED_PAD_RULE, ZERO_PAD_RULE
from aoe.graph.rewrites.patterns.activations import (
    GELU_RULE,
    HARD_SIGMOID_RULE,
    HARD_SWISH_RULE,
    MISH_RULE,
    SILU_RULE,
    TANH_GELU_RULE,
)
from aoe.graph.rewrites.patterns.normalization import (
    CHANNELS_RULE,
    GROUPS_RULE,
    LAYER_RULE,
    RMS_RULE,
)
from aoe.graph.rewrites.protocol import RewriteRule

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
