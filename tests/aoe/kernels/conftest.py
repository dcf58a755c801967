"""Kernels of these tests run on two threads, whatever the machine has."""

from __future__ import annotations

import os

os.environ.setdefault("HL_NUM_THREADS", "2")
