"""Fingerprints of environments: the one of a measurement against the present one.

Only what both sides know is compared. What a record is about (operators, shapes, data types,
precision) is in its key, so a record that differs there is another record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aoebank.model.json_value import JsonObject

KERNEL_SOURCE = "kernel_source"
"""Digest of the sources a strategy is turned into code by; only the engine can compute it."""
SOFT_FACTS = ("cpu_model", "core_num", "governor", "onnxruntime", "halide", "torch")
"""What changes times, but not what a strategy means."""
UNKNOWN = "no fingerprint: nobody noted where it was measured, to be checked again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Distance of the present environment from the one a record was measured in."""

    hard: tuple[str, ...] = ()  # Why the record must not be used, a sentence each
    # Why it is to be measured again, a sentence each; it may be used meanwhile.
    soft: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join((*self.hard, *self.soft))

    @property
    def is_stale(self) -> bool:
        """True if the record must not be used."""
        return bool(self.hard)


def compare_fingerprints(then: JsonObject | None, now: JsonObject) -> Drift:
    """Return the drift: differences that make a record stale, and those that make it doubtful.

    Args:
        then: Fingerprint of the record; None or empty where nothing was noted, which is doubtful.
        now: What is known of the present environment; what it lacks is not compared.

    Returns:
        A drift without sentences where everything agrees.
    """
    if not then:
        return Drift(soft=(UNKNOWN,))
    return Drift(hard=tuple(_hard(then, now)), soft=tuple(_soft(then, now)))


def _hard(then: JsonObject, now: JsonObject) -> Iterator[str]:
    if _differ(then, now, "soc_version"):
        yield f"target {then['soc_version']} -> {now['soc_version']}: made for another one"
    if _differ(then, now, "features"):
        missing = _words(then["features"]) - _words(now["features"])
        if missing:
            yield f"instructions that are not here: {', '.join(sorted(missing))}"
    if _differ(then, now, KERNEL_SOURCE):
        yield "kernel source changed: stale"


def _soft(then: JsonObject, now: JsonObject) -> Iterator[str]:
    for name in SOFT_FACTS:
        if _differ(then, now, name):
            yield f"{name} {then[name]} -> {now[name]}: soft mismatch, to be checked again"
    if KERNEL_SOURCE in now and KERNEL_SOURCE not in then:
        yield "kernel source was not noted: to be checked again"


def _differ(then: JsonObject, now: JsonObject, name: str) -> bool:
    return name in then and name in now and then[name] != now[name]


def _words(features: Any) -> set[str]:
    return set(str(features).split("-")) - {""}
