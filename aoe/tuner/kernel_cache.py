"""The folder of compiled kernels a run takes from and keeps in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from aoe.device.kept_objects import KeptObjects
from aoe.folders.disk_cache import DiskCache
from aoe.folders.ownership import UnsafeFolderError, check_own_folder
from aoe.settings import cache_limit, cache_path
from aoe.tuner.mode import CacheMode, TuneSettings


def kept_objects(
    settings: TuneSettings,
    env: Mapping[str, str],
    cwd: Path,
    warn: Callable[[str], None],
) -> KeptObjects | None:
    """Return the folder of compiled kernels, None for none.

    Args:
        settings: Of the run.
        env: The process's environment.
        cwd: Where relative paths start.
        warn: Is told of a folder that is not used, since others can write to it.

    Raises:
        OptionError: `AOE_CACHE_SIZE` is not a size.
    """
    root, limit_bytes = cache_path(env), cache_limit(env)
    if settings.cache_dir is not None:
        root = cwd / settings.cache_dir
    if root is None or not limit_bytes or settings.cache_mode is CacheMode.DISABLE:
        return None
    try:
        check_own_folder(root / "kernels")
    except UnsafeFolderError as error:
        warn(f"compiled kernels are not kept in {root}: {error.strerror}; chmod go-w")
        return None
    except OSError:  # no folder can be made there
        return None
    renew = settings.cache_mode is CacheMode.FORCE
    return KeptObjects(files=DiskCache(root / "kernels", limit_bytes), renew=renew)
