"""Convolution by Winograd's minimal filtering."""
