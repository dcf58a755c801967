"""The soc_versions readers take for related, and what their folders are called.

Source: names of the files CANN 8.1.RC1 installs; its Python readers.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

# soc_version -> those whose banks the static readers go on to, in order. Only the ones that
# are known for certain; a reader may know more.
SOC_ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "Ascend310B2": ("Ascend310B1",),
    "Ascend310B3": ("Ascend310B1",),
    "Ascend310B4": ("Ascend310B1",),
    "Ascend910B1": ("Ascend910B2",),
    "Ascend910B2": ("Ascend910B1",),
    "Ascend910B2C": ("Ascend910B2", "Ascend910B1"),
    "Ascend910B3": ("Ascend910B4", "Ascend910B5"),
    "Ascend910_9391": ("Ascend910B1", "Ascend910B2"),
}

# start of the soc_version -> folder of the built-in cube and vector banks, first match counts
_SHORT_SOCS = (
    ("Ascend910B", "Ascend910B"),
    ("Ascend910_93", "Ascend910B"),
    ("Ascend910", "ascend910"),
    ("Ascend310P", "Ascend310P"),
)


def short_soc(soc_version: str) -> str:
    """Return the folder the built-in cube and vector banks of a soc_version are in.

    >>> short_soc("Ascend910_9391")
    'Ascend910B'
    """
    shorts = (short for start, short in _SHORT_SOCS if soc_version.startswith(start))
    return next(shorts, soc_version)


_FAMILIES = Path(__file__).resolve().parents[2] / "schemas" / "soc_families.json"


@cache
def soc_family(soc_version: str) -> str | None:
    """Return the family of chips a soc_version is of, None where none is known.

    >>> soc_family("Ascend910_9391"), soc_family("Ascend910B4-1"), soc_family("x86-64-v4")
    ('Ascend910_93', 'Ascend910B', None)
    """
    starts = json.loads(_FAMILIES.read_text(encoding="utf-8"))["families"]
    fitting = (start for start in starts if soc_version.startswith(start))
    return max(fitting, key=len, default=None)


def usual_case(soc_version: str) -> str:
    """Return a soc_version as the toolkit spells it, itself where no family is known.

    >>> usual_case("ascend910b2"), usual_case("Ascend910B2"), usual_case("x86-64-V4")
    ('Ascend910B2', 'Ascend910B2', 'x86-64-V4')
    """
    starts = json.loads(_FAMILIES.read_text(encoding="utf-8"))["families"]
    fitting = (start for start in starts if soc_version.lower().startswith(start.lower()))
    start = max(fitting, key=len, default="")
    return start + soc_version[len(start) :]


OLD_SOC_VERSIONS: dict[str, tuple[str, ...]] = {
    "aarch64-a64fx": ("aarch64",),
    "aarch64-ampere1": ("aarch64",),
    "aarch64-ampere1a": ("aarch64",),
    "aarch64-cortex-a72": ("aarch64",),
    "aarch64-m1": ("aarch64",),
    "aarch64-m2": ("aarch64",),
    "aarch64-neoverse-n1": ("aarch64",),
    "aarch64-neoverse-n2": ("aarch64",),
    "aarch64-neoverse-v1": ("aarch64",),
    "aarch64-neoverse-v2": ("aarch64",),
    "aarch64-thunderx2": ("aarch64",),
    "aarch64-tsv110": ("aarch64",),
    "x86-64-alderlake": ("x86-64-v3",),
    "x86-64-arrowlake": ("x86-64-v3",),
    "x86-64-arrowlake-s": ("x86-64-v3",),
    "x86-64-broadwell": ("x86-64-v3",),
    "x86-64-cannonlake": ("x86-64-v4",),
    "x86-64-cascadelake": ("x86-64-v4",),
    "x86-64-cooperlake": ("x86-64-cascadelake", "x86-64-v4"),
    "x86-64-graniterapids": ("x86-64-sapphirerapids", "x86-64-icelake", "x86-64-v4"),
    "x86-64-haswell": ("x86-64-v3",),
    "x86-64-icelake": ("x86-64-v4",),
    "x86-64-rocketlake": ("x86-64-cannonlake", "x86-64-v4"),
    "x86-64-sapphirerapids": ("x86-64-icelake", "x86-64-v4"),
    "x86-64-sierraforest": ("x86-64-arrowlake", "x86-64-v3"),
    "x86-64-skylake": ("x86-64-v3",),
    "x86-64-skylake-avx512": ("x86-64-v4",),
    "x86-64-tigerlake": ("x86-64-icelake", "x86-64-v4"),
    "x86-64-zen": ("x86-64-v3",),
    "x86-64-zen2": ("x86-64-v3",),
    "x86-64-zen3": ("x86-64-v3",),
    "x86-64-zen4": ("x86-64-v4",),
    "x86-64-zen5": ("x86-64-v4",),
}
"""soc_version -> what it was called before, most telling name first.

A level of the instruction set was the name of every guest with one feature masked that its
microarchitecture has. Other names are those of the newest part archspec 0.2.7 took it for; KVM
masks WAITPKG, so that a Sapphire Rapids guest passed for an Ice Lake. Source: archspec.cpu.host.
"""


def old_soc_versions(soc_version: str) -> tuple[str, ...]:
    """Return the names a target may have in older banks, in the order they are looked up.

    >>> old_soc_versions("x86-64-zen4")
    ('x86-64-v4',)
    """
    return OLD_SOC_VERSIONS.get(soc_version, ())
