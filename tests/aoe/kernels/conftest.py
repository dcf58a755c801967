"""Kernels of these tests run on two threads, whatever the machine has."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("HL_NUM_THREADS", "2")
pytest.register_assert_rewrite("aoe.testing.kernels")
