"""Measuring and compiling on other machines: Dask carries tasks to them, and answers back."""
