"""Signatures of `.om` files: over the manifest, which has the digest of every other part.

Made and checked by OpenSSH, as those of packs of banks.
"""

from __future__ import annotations

from pathlib import Path

from aoe.errors import OfflineModelError
from aoebank import find_signer, sign_data

SIGNATURE = "manifest.json.sig"
NAMESPACE = "aoe-om"
"""What signatures are for, see ssh-keygen(1): one of a pack or a commit is none of a model."""
MOST_SIGNATURE_BYTES = 1 << 15


def sign_manifest(manifest: bytes, key: Path) -> bytes:
    """Return a signature of the bytes of a manifest.

    Raises:
        AoebankError: there is no such key, it cannot sign, or there is no ssh-keygen.
    """
    return sign_data(manifest, key, NAMESPACE)


def check_signature(file: Path, manifest: bytes, signature: bytes | None, trusted: Path) -> str:
    """Return the signer of a model.

    Args:
        file: The `.om`, for messages.
        manifest: The bytes of its manifest.
        signature: None if it has none.
        trusted: File of allowed signers, in the form of ssh-keygen(1).

    Raises:
        OfflineModelError: none of them signed it.
        AoebankError: there is no such file of signers, or no ssh-keygen.
    """
    expected = f"a signature of one of {trusted}"
    if signature is None:
        raise OfflineModelError(
            str(file),
            "is not signed",
            expected=expected,
            hint="whoever made it signs it: aoe sign FILE.om --key ~/.ssh/id_ed25519",
        )
    signer = find_signer(manifest, signature, trusted, NAMESPACE)
    if not signer:
        raise OfflineModelError(
            str(file),
            "is not signed by anybody trusted, or was changed since",
            expected=expected,
            hint="get it again, or ask whoever made it for their public key",
        )
    return signer
