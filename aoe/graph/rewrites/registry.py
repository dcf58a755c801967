"""Every rewrite rule by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aoe.graph.rewrites import (
    activations,
    arithmetic,
    attention,
    channels,
    cleanup,
    convolution,
    layout,
    lookups,
    normalization,
    spectra,
    waves,
)
from aoe.graph.rewrites.protocol import RewriteRule

_ALL = (
    channels.SPLIT_RULE,
    channels.JOINED_RULE,
    convolution.BEFORE_RULE,
    convolution.BEHIND_RULE,
    convolution.GATE_RULE,
    convolution.PARALLEL_RULE,
    arithmetic.MEAN_RULE,
    channels.SHUFFLE_RULE,
    channels.WIDEN_RULE,
    channels.FILTERS_RULE,
    channels.GROUPS_RULE,
    lookups.TABLES_RULE,
    layout.LIFT_RULE,
    convolution.TRANSPOSED_RULE,
    layout.ZERO_PAD_RULE,
    layout.MIRRORED_PAD_RULE,
    attention.MULTI_HEAD_RULE,
    attention.OPERATOR_RULE,
    attention.APART_RULE,
    attention.MERGED_RULE,
    attention.TAKEN_RULE,
    activations.GELU_RULE,
    activations.TANH_GELU_RULE,
    activations.SILU_RULE,
    activations.MISH_RULE,
    activations.HARD_SWISH_RULE,
    activations.HARD_SIGMOID_RULE,
    normalization.LAYER_RULE,
    normalization.CHANNELS_RULE,
    normalization.RMS_RULE,
    normalization.GROUPS_RULE,
    spectra.DFT_STAGES_RULE,
    spectra.STFT_STAGES_RULE,
    spectra.DFT_RULE,
    spectra.STFT_RULE,
    waves.WAVE_CONVOLUTION_RULE,
    waves.WAVE_SYNTHESIS_RULE,
    arithmetic.POWER_RULE,
    arithmetic.PLAIN_RESIZE_RULE,
    arithmetic.VOLUME_RESIZE_RULE,
    layout.THROUGH_RULE,
    layout.SUNK_RULE,
    layout.INTO_RULE,
    cleanup.CONSTANTS_RULE,
    cleanup.DUPLICATES_RULE,
    cleanup.PAIRS_RULE,
    cleanup.IDLE_RULE,
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

GAIN_ON_KERNELS: Mapping[str, float] = MappingProxyType(
    {
        "channels-to-whole-blocks": 2.278,
        "concat-convolution-sum": 1.080,
        "convolution-1d-as-2d": 0.995,
        "convolution-split": 1.045,
        "dft-as-product": 2.295,
        "dft-in-stages": 3.497,
        "gate-into-weights": 0.939,
        "gelu": 1.096,
        "resize-to-blocked-form": 1.353,
        "shuffle-into-weights": 1.117,
        "silu": 1.101,
        "stft-as-convolution": 10.997,
        "stft-in-stages": 19.070,
        "transformers-optimizer": 1.031,
        "wave-convolution-in-stages": 3.454,
        "wave-synthesis-in-stages": 4.105,
    }
)
"""Speed-up of the other rules on their blocks where kernels are tuned for both, the geometric mean:
what a search expects of a rule before its bank knows better. Source:
benchmarks/results/rewrites-on-kernels.json."""
