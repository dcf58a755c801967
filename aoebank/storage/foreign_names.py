"""Names of files in banks that come from others: in a pack, in a file of rows."""

from __future__ import annotations

from pathlib import PurePosixPath

from aoebank.storage.git.attributes import QUARANTINE


def is_name_in_bank(name: str) -> bool:
    """True for a path below the root of a bank that a bank has use for.

    A hidden file or folder is none but the quarantine: git runs programs that `.git/config` names,
    and a journal makes the next command rename and remove files.
    """
    parts = PurePosixPath(name).parts
    if not parts or name != "/".join(parts) or "\\" in name or "\0" in name:
        return False
    return name == QUARANTINE or not any(part.startswith((".", "/")) for part in parts)
