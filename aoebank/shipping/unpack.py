"""Take a bank out of a pack: every byte is checked before anything of it has its name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankFormatError, BankPathError, shell_word
from aoebank.storage.packs.archive import NAMESPACE, Pack, open_pack
from aoebank.storage.packs.manifest import PackManifest
from aoebank.storage.signing import demand_signers, find_signer
from aoebank.storage.writing.staged import put_back_new_tree, write_new_tree

_VERB = "unpack"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackResult:
    """A pack whose files all are what its manifest says.

    Attributes:
        root: Where the bank lies now; None if it was only looked at.
        is_signed: Whether the pack has a signature.
        signer: Who signed it; empty if nobody was asked to be allowed.
    """

    pack: Path
    root: Path | None
    manifest: PackManifest
    is_signed: bool
    signer: str = ""


def unpack(pack: Path, root: Path | None, *, allowed: Path | None = None) -> UnpackResult:
    """Take a bank out of a pack, whole or not at all.

    Args:
        pack: The archive.
        root: Folder for the bank, which must not be there yet; None to check the pack only.
        allowed: File of allowed signers, in OpenSSH's form: a pack none of them signed is refused.

    Raises:
        BankNotFoundError: there is no such pack, or no such file of signers.
        BankFormatError: it is damaged, or nobody allowed has signed it.
        BankPathError: the folder is there already, or cannot be made.
    """
    if root is not None and root.name:
        put_back_new_tree(root, verb=_VERB)
    if root is not None and os.path.lexists(root):
        raise BankPathError(
            "is there already, and a pack becomes a folder of its own",
            path=root,
            hint="unpack it beside, then: aoebank merge "
            f"{shell_word(root)} UNPACKED -o {shell_word(root)}",
        )
    with open_pack(pack) as opened:
        signer = _signer(opened, pack, allowed)
        if root is None:
            for _ in opened.iter_files():
                pass
        else:
            contents = ((file.name, data) for file, data in opened.iter_files())
            write_new_tree(root, contents, verb=_VERB)
        return UnpackResult(
            pack=pack,
            root=root,
            manifest=opened.manifest,
            is_signed=opened.signature is not None,
            signer=signer,
        )


def _signer(opened: Pack, pack: Path, allowed: Path | None) -> str:
    if allowed is None:
        return ""
    demand_signers(allowed)
    if opened.signature is None:
        raise BankFormatError(
            "is not signed",
            path=pack,
            expected=f"a signature of one of {allowed}",
            hint="ask for a signed pack, or leave out --allowed-signers",
        )
    signer = find_signer(opened.signed, opened.signature, allowed, NAMESPACE)
    if not signer:
        raise BankFormatError(
            "is not signed by anybody allowed, or was changed since",
            path=pack,
            expected=f"a signature of one of {allowed}",
            hint="get it again, or ask whoever made it for their public key",
        )
    return signer
