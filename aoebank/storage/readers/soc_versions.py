"""The soc_versions readers take for related, and what their folders are called.

Source: names of the files CANN 8.1.RC1 installs; its Python readers.
"""

from __future__ import annotations

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
