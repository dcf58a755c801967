"""Processes of runtimes: started, asked, paused between their turns, ended."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from comparison.prepared import PreparedNetwork
from runtimes.runtime import Peer

_HERE = Path(__file__).resolve().parent.parent
_LOG_CHARACTERS = 300
_START_TIMEOUT_S = 900.0
_TURN_TIMEOUT_S = 300.0

Answer = dict[str, Any]


class PeerFailure(Exception):
    """A runtime could not do what it was asked; the text is its row in the table."""


class RuntimeProcess:
    """One runtime in a process, and a process group, of its own.

    Use as a context: whatever happens, the group ends with it.
    """

    def __init__(
        self,
        verb: str,
        peer: Peer,
        network: PreparedNetwork,
        *,
        folder: Path,
        settings: Mapping[str, Any],
    ) -> None:
        """Start it.

        Args:
            verb: `build`, or `measure`.
            peer: What runs.
            network: What it runs.
            folder: Its own, see `RuntimeTask`.
            settings: `threads` and `budget_s`.
        """
        self._log = folder / f"{verb}.log"
        self._buffer = b""
        self.outputs = folder / "outputs.npz"
        request = {
            **settings,
            "verb": verb,
            "network": network.name,
            "model": str(network.folder / peer.model if peer.model else network.model),
            "inputs": str(network.inputs),
            "outputs": str(self.outputs),
            "module": peer.module,
            "options": dict(peer.options),
            "folder": str(folder),
        }
        folder.mkdir(parents=True, exist_ok=True)
        task = folder / f"{verb}.json"
        task.write_text(json.dumps(request, indent=1))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "runtimes.worker", str(task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(folder, int(settings["threads"])),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def wait_ready(self, timeout_s: float = _START_TIMEOUT_S) -> Answer:
        """Return what a process says when it has done its work or is ready for turns.

        Raises:
            PeerFailure: it failed, ended or did not answer in time.
        """
        return self._answer(timeout_s)

    def take_turn(self, seconds: float) -> Answer:
        """Let it run for a while, then stop it, so that no waiting thread of its pool spins.

        Raises:
            PeerFailure: it failed, ended or did not answer in time.
        """
        os.killpg(self._process.pid, signal.SIGCONT)
        stream = _pipe(self._process.stdin)
        try:
            stream.write(json.dumps({"seconds": seconds}).encode() + b"\n")
            stream.flush()
        except OSError as error:
            raise PeerFailure(self._ended()) from error
        answer = self._answer(_TURN_TIMEOUT_S)
        self.pause()
        return answer

    def pause(self) -> None:
        """Stop every thread until the next turn."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGSTOP)

    def _answer(self, timeout_s: float) -> Answer:
        line = self._line(time.monotonic() + timeout_s)
        if line is None:
            raise PeerFailure(f"no answer in {timeout_s:.0f} s")
        if not line:
            raise PeerFailure(self._ended())
        answer: Answer = json.loads(line)
        if "failure" in answer:
            raise PeerFailure(answer["failure"])
        return answer

    def _line(self, end: float) -> bytes | None:
        """Return the next line; nothing when the process is gone, None when time is over."""
        stream = _pipe(self._process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                chunk = os.read(stream.fileno(), 65536)
                if not chunk:
                    return b""
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _ended(self) -> str:
        code = self._process.wait()
        end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        said = self._log.read_text(errors="replace").strip()[-_LOG_CHARACTERS:]
        return f"{end}: {said}" if said else end


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _environment(folder: Path, threads: int) -> dict[str, str]:
    """Return the environment of a runtime: as many threads, caches in its own folder."""
    paths = [str(_HERE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": str(threads),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache" / "inductor"),
    }
