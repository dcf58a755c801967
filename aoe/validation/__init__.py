"""Validation of the whole model: what wins alone and loses in the model is dropped.

`kernels` decides which kernels stay, `graphs` which graph they stay in; `model_validator` has the
decision itself, for kernels and rewrites alike: group tests, memory, and a last comparison with the
untuned model in fresh processes.
"""
