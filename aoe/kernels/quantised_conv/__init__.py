"""Convolutions of integers that stand for numbers: QLinearConv and the chain behind it."""
