"""Devices that kernels are compiled for and run on: one folder or file per kind."""
