"""Every rewrite rule by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from aoe.graph.rewrites.arithmetic.means import MEAN_RULE
from aoe.graph.rewrites.convolution.divided import SPLIT_RULE
from aoe.graph.rewrites.protocol import RewriteRule

_ALL = (
    SPLIT_RULE,
    MEAN_RULE,
)

RULES: Mapping[str, RewriteRule] = MappingProxyType({rule.name: rule for rule in _ALL})
