"""Convolutions of plain tensors, any number of axes, and their transposes."""
