"""The CPU, for tests of parts that work on any device."""

from __future__ import annotations

from aoe.device.registry import DEVICES

CPU = DEVICES["cpu"]
open_session = CPU.open_session
