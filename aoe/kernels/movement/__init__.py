"""Operators that compute nothing, and the chain behind them."""
