"""Triton configurations that vLLM and SGLang keep in git."""
