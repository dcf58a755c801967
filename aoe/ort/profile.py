"""Per-node times of a model, from ONNX Runtime's profiler."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Protocol, Self

import onnx
import onnxruntime as ort

from aoe.errors import RunError
from aoe.ort.inputs import MADE_UP, ModelInputs
from aoe.ort.sessions import OpenSession, run_session, session_options, session_source
from aoe.ort.thread_pools import ThreadPool

_SUFFIX = "_kernel_time"
_WARMUP_RUNS = 3
RUNS = 10
"""Runs of a profile that count."""
_LONG_RUN_US = 1e5
"""What allocating the memory of a first run adds to such a one does not matter, and no more runs
warm it up than the one that tries the inputs."""
LEAST_RUNS = 3
"""Where the time is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRun:
    """A node in one run of a model; its times count from the beginning of that run."""

    node: str
    start_us: float
    duration_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """Time of a model by node."""

    node_us: Mapping[str, float]  # Median time of each node in microseconds, by node name
    model_us: float  # Median time of a whole run, profiler on
    runs: int = RUNS  # Runs that count; 0 where there was no time to profile
    node_min_us: Mapping[str, float] = field(default_factory=dict)  # Shortest time of each node
    model_min_us: float = 0.0  # Shortest time of a whole run; 0 where there was no time to profile
    # The nodes of the run whose time is the median, in the order they began.
    timeline: tuple[NodeRun, ...] = ()
    load_s: float = 0.0  # Seconds it took until a session of the model had run once
    # CPU time the profiled process got of what it asked for, 1 on a quiet machine.
    given_share: float = 1.0
    points_us: tuple[float, ...] = ()  # Time of a whole run at each point of a range, profiler off
    is_recalled: bool = False  # True if an earlier run has measured it

    def to_json(self) -> dict[str, Any]:
        """Return all of it, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return a profile that `to_json` has written.

        Raises:
            TypeError: it is no such thing.
        """
        timeline = tuple(NodeRun(**one) for one in value.get("timeline", ()))
        points_us = tuple(value.get("points_us", ()))
        return cls(**{**value, "timeline": timeline, "points_us": points_us})

    @property
    def nodes_us(self) -> float:
        """Time of all nodes together, microseconds; 0 where there was no time to profile."""
        return sum(self.node_us.values())

    def us_of(self, nodes: Iterable[onnx.NodeProto]) -> float:
        """Return the time of some nodes together, microseconds."""
        return sum(self.node_us.get(node.name, 0.0) for node in nodes)

    def share_of(self, nodes: Iterable[onnx.NodeProto]) -> float:
        """Return the part of the time of all nodes that some take, between 0 and 1."""
        return self.us_of(nodes) / (self.nodes_us or 1.0)


def profile_runs(runs: int, run_s: float = 0.0) -> int:
    """Return the number of runs for so many runs that count, each of so many seconds."""
    return (1 if run_s > _LONG_RUN_US / 1e6 else _WARMUP_RUNS) + runs


class ProfileModel(Protocol):
    """Times a model node by node; see `profile_model`."""

    def __call__(
        self,
        model: onnx.ModelProto | Path,
        directory: Path,
        open_session: OpenSession,
        *,
        threads: int,
        runs: int = RUNS,
        most_s: float = math.inf,
        inputs: ModelInputs = MADE_UP,
        library: Path | None = None,
        points: Sequence[ModelInputs] = (),
    ) -> ModelProfile:
        """Return the times of all nodes."""
        ...


def profile_model(
    model: onnx.ModelProto | Path,
    directory: Path,
    open_session: OpenSession,
    *,
    threads: int,
    runs: int = RUNS,
    most_s: float = math.inf,
    inputs: ModelInputs = MADE_UP,
    library: Path | None = None,
    points: Sequence[ModelInputs] = (),
    pool: ThreadPool = ThreadPool.OWN,
) -> ModelProfile:
    """Run an optimised model under ONNX Runtime's profiler.

    Args:
        model: A model or its file, run as it is written, with distinct node names.
        directory: Where the profiler puts its trace.
        open_session: Loads a model on the device that is profiled.
        threads: Intra-op threads.
        runs: Runs that count; a few more warm up.
        most_s: Seconds after which `LEAST_RUNS` that count will do.
        inputs: What it is run on; of several sets, the first.
        library: Kernel library of a tuned model.
        points: Further inputs, of other shapes, for the time of a whole run.
        pool: Threads that compute: those of the process where it has shared ones.

    Raises:
        RunError: the model cannot be run on these inputs, or there is no room for the trace.
    """
    options = session_options(threads=threads, optimize=False, pool=pool, library=library)
    options.enable_profiling = True
    options.profile_file_prefix = str(directory / "ort_profile")
    source = model if isinstance(model, Path) else session_source(model, options)
    opening_s = time.monotonic()
    session = open_session(source, options)
    feed = inputs.first(session)
    _try(session, feed, inputs)
    began_s, done, least = time.monotonic(), 1 - _WARMUP_RUNS, min(LEAST_RUNS, runs)
    while done < least or (done < runs and time.monotonic() - began_s < most_s):
        run_began_s = time.monotonic()
        run_session(session, feed)
        is_long = time.monotonic() - run_began_s > _LONG_RUN_US / 1e6
        done = max(done + 1, int(is_long))
    events = _read_events(Path(session.end_profiling()))
    proto = onnx.load(str(model), load_external_data=False) if isinstance(model, Path) else model
    points_us = tuple(_run_us(session, inputs) for inputs in points)
    profile = _read_trace(events, proto, done)
    return replace(profile, load_s=began_s - opening_s, points_us=points_us)


def _run_us(session: ort.InferenceSession, inputs: ModelInputs) -> float:
    """Return the time of a run on some inputs; a short one is run again, warmed up."""
    feed = inputs.first(session)
    us = math.inf
    for _ in range(2):
        began_s = time.monotonic()
        run_session(session, feed)
        us = min(us, (time.monotonic() - began_s) * 1e6)
        if us > _LONG_RUN_US:
            break
    return us


def _try(session: ort.InferenceSession, feed: Mapping[str, Any], inputs: ModelInputs) -> None:
    """Run a model once; where it refuses made-up inputs, the error says what to give."""
    try:
        run_session(session, feed)
    except RunError as error:
        if inputs.sets or error.hint:
            raise
        raise RunError(
            error.where,
            error.problem,
            hint="inputs were made up, with zeros for integers: give real ones, --input NAME:x.npy",
        ) from error


def _read_events(trace: Path) -> list[dict[str, Any]]:
    """Return the events of a trace, whose file is removed."""
    try:
        events: list[dict[str, Any]] = json.loads(trace.read_text())
    except (OSError, ValueError) as error:
        problem = f"ONNX Runtime has not written its profile to the end: {error}"
        hint = f"make room in {gettempdir()}, or set TMPDIR to a folder that has some"
        raise RunError("model", problem, hint=hint) from error
    finally:
        trace.unlink(missing_ok=True)
    return events


def _read_trace(events: list[dict[str, Any]], proto: onnx.ModelProto, runs: int) -> ModelProfile:
    nodes = {node.name for node in proto.graph.node}
    samples: dict[str, list[float]] = defaultdict(list)
    whole: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []
    for event in events:
        name = event.get("name", "")
        node = name.removesuffix(_SUFFIX)
        if name == "model_run":
            whole.append(event)
        elif name.endswith(_SUFFIX) and node in nodes:
            samples[node].append(float(event["dur"]))
            kernels.append(event)
    whole = whole[-runs:]
    times = [float(event["dur"]) for event in whole]
    return ModelProfile(
        node_us={name: statistics.median(values[-runs:]) for name, values in samples.items()},
        model_us=statistics.median(times),
        runs=runs,
        node_min_us={name: min(values[-runs:]) for name, values in samples.items()},
        model_min_us=min(times),
        timeline=_timeline(whole[times.index(statistics.median_low(times))], kernels),
    )


def _timeline(run: Mapping[str, Any], kernels: list[dict[str, Any]]) -> tuple[NodeRun, ...]:
    """Return the nodes that ran in one run."""
    began, ended = float(run["ts"]), float(run["ts"]) + float(run["dur"])
    inside = (event for event in kernels if began <= float(event["ts"]) <= ended)
    return tuple(
        NodeRun(
            node=event["name"].removesuffix(_SUFFIX),
            start_us=float(event["ts"]) - began,
            duration_us=float(event["dur"]),
        )
        for event in sorted(inside, key=lambda event: float(event["ts"]))
    )
