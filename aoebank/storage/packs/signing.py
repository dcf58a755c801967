"""Signatures of packs, by OpenSSH: the keys are those people sign commits with.

Source: ssh-keygen(1), `-Y sign`, `-Y find-principals`, `-Y verify`; PROTOCOL.sshsig of OpenSSH.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError, UsageError, shell_word

NAMESPACE = "aoebank-pack"
"""What signatures are for: one made for a commit or an e-mail is none for a pack."""
MOST_SIGNATURE_BYTES = 1 << 15
"""Source: pipe(7): what a pipe takes before anybody reads is 64 KiB or more."""


def sign(data: bytes, key: Path) -> bytes:
    """Return a signature of `data`.

    Args:
        key: Private key of OpenSSH, or the public one of a key an agent holds.

    Raises:
        BankNotFoundError: there is no such key.
        UsageError: ssh-keygen is not there, or cannot sign with it.
    """
    if not key.is_file():
        raise BankNotFoundError("no such key", path=key, hint="ssh-keygen -t ed25519 makes one")
    done = _run(["sign", "-q", "-f", str(key), "-n", NAMESPACE], data)
    if done.returncode or not done.stdout:
        raise UsageError(f"--sign: {_words(done)}", got=str(key))
    return done.stdout


def verify(data: bytes, signature: bytes, allowed: Path, pack: Path) -> str:
    """Return who signed `data`, as the file of allowed signers calls them.

    Args:
        allowed: File of allowed signers: a line for each, a name and a public key.
        pack: For messages.

    Raises:
        BankFormatError: nobody in it signed this.
    """
    names = _run(["find-principals", "-f", str(allowed)], b"", signature)
    for name in names.stdout.decode("utf-8", errors="replace").splitlines():
        asked = ["verify", "-f", str(allowed), "-I", name, "-n", NAMESPACE]
        if _run(asked, data, signature).returncode == 0:
            return name
    raise BankFormatError(
        "is not signed by anybody allowed, or was changed since",
        path=pack,
        expected=f"a signature of one of {allowed}",
        hint="get it again, or ask whoever made it for their public key",
    )


def demand_signers(allowed: Path) -> None:
    """Raise `BankNotFoundError` unless there is such a file of allowed signers."""
    if not allowed.is_file():
        raise BankNotFoundError(
            "no such file of allowed signers",
            path=allowed,
            hint=f'echo "me $(cat ~/.ssh/id_ed25519.pub)" > {shell_word(allowed)}',
        )


def _run(
    arguments: Sequence[str], data: bytes, signature: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run ssh-keygen on `data`; a signature is a file to it, so it gets one end of a pipe."""
    with ExitStack() as stack:
        given: list[int] = []
        if signature is not None:
            read_end, write_end = os.pipe()
            stack.callback(os.close, read_end)
            with os.fdopen(write_end, "wb") as stream:
                stream.write(signature[:MOST_SIGNATURE_BYTES])
            given, arguments = [read_end], [*arguments, "-s", f"/dev/fd/{read_end}"]
        try:
            return subprocess.run(
                ["ssh-keygen", "-Y", *arguments],
                input=data,
                capture_output=True,
                check=False,
                pass_fds=given,
            )
        except FileNotFoundError as error:
            raise UsageError(
                "signatures need ssh-keygen, which is not on PATH",
                hint="install OpenSSH's client",
            ) from error


def _words(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"ssh-keygen ended with {done.returncode}"
