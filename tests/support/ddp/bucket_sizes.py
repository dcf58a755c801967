"""The buckets a `DistributedDataParallel` module has, as it logs them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, cast

LOGGING_DATA = attrgetter("_get_ddp_logging_data")


def bucket_sizes_bytes(ddp: Any) -> tuple[int, ...]:
    """Return the bucket sizes DDP uses now, in the order they are sent.

    Right after construction, before DDP filled its buckets again, these are the initial ones.
    """
    data = LOGGING_DATA(ddp)()
    rebuilt = data.get("rebuilt_bucket_sizes") if data.get("has_rebuilt_buckets") else None
    text = cast(str, rebuilt or data.get("bucket_sizes") or "")
    return tuple(int(size) for size in text.split(",") if size.strip())
