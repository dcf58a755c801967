"""Search: proposes configurations and learns from their trials; it never measures."""

from aoe.tuner.search.protocol import BestTrial, Search, Trial
from aoe.tuner.search.registry import SEARCHES, make_search

__all__ = ["SEARCHES", "BestTrial", "Search", "Trial", "make_search"]
