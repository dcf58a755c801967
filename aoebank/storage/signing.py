"""Signatures of packs, by OpenSSH: people sign commits with the same keys.

Source: ssh-keygen(1), `-Y sign`, `-Y find-principals`, `-Y verify`; PROTOCOL.sshsig of OpenSSH.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from aoebank.errors import BankNotFoundError, UsageError, shell_word

MOST_SIGNATURE_BYTES = 1 << 15
"""Source: pipe(7): what a pipe takes before anybody reads is 64 KiB or more."""


def sign_data(data: bytes, key: Path, namespace: str) -> bytes:
    """Return a signature of `data`.

    Args:
        data: What is signed.
        key: Private key of OpenSSH, or the public one of a key an agent holds.
        namespace: What signatures are for: one made for a commit is none for a pack.

    Raises:
        BankNotFoundError: there is no such key.
        UsageError: ssh-keygen is not there, or cannot sign with it.
    """
    if not key.is_file():
        raise BankNotFoundError("no such key", path=key, hint="ssh-keygen -t ed25519 makes one")
    done = _run(["sign", "-q", "-f", str(key), "-n", namespace], data)
    if done.returncode or not done.stdout:
        raise UsageError(f"cannot sign with this key: {_words(done)}", got=str(key))
    return done.stdout


def find_signer(data: bytes, signature: bytes, allowed: Path, namespace: str) -> str:
    """Return the signer of `data` in the file of allowed signers, empty if there is none.

    Args:
        data: What is said to be signed.
        signature: In OpenSSH's form.
        allowed: File of allowed signers: a line for each, a name and a public key.
        namespace: What the signature has to be for.

    Raises:
        BankNotFoundError: there is no such file of signers.
        UsageError: ssh-keygen is not there.
    """
    demand_signers(allowed)
    names = _run(["find-principals", "-f", str(allowed)], b"", signature)
    for name in names.stdout.decode("utf-8", errors="replace").splitlines():
        asked = ["verify", "-f", str(allowed), "-I", name, "-n", namespace]
        if _run(asked, data, signature).returncode == 0:
            return name
    return ""


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
