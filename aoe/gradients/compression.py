"""Gradients that are summed in 16 bits: only where the user allows it by name.

Half the bytes go over the link, and results differ in rounding. So nothing of it is ever a
candidate beside groupings that keep the bits: it has a modelhash, a record and a report of its own.
"""

from __future__ import annotations

from enum import StrEnum

from aoe.errors import OptionError

OPTION = "--allow_compression"
TOLERANCE = 0.01
"""Largest distance of the summed gradients of a bucket from those of float32, over their length
(L2). Rounding to bfloat16 alone makes 0.002; small gradients that float16 cannot hold make 1."""


class Compression(StrEnum):
    """In which type gradients are sent and summed. Source: the names of torch's hooks."""

    BFLOAT16 = "bf16"
    FLOAT16 = "fp16"

    @property
    def type_name(self) -> str:
        """Name of the type."""
        return {Compression.BFLOAT16: "bfloat16", Compression.FLOAT16: "float16"}[self]

    @property
    def words(self) -> str:
        """Effect on results, for people."""
        return f"gradients are summed in {self.type_name}: results differ in rounding"


def parse_compression(text: str | None, where: str = OPTION) -> Compression | None:
    """Return the compression of gradients in a text, None for none.

    Raises:
        OptionError: it is no type gradients can be summed in.
    """
    if text is None:
        return None
    try:
        return Compression(text)
    except ValueError as error:
        raise OptionError(
            where,
            "gradients cannot be summed in it",
            got=repr(text),
            expected=" or ".join(Compression),
            hint="leave it out to keep results bit for bit",
        ) from error
