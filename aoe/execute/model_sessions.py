"""Sessions of whole models: both of a comparison at once, or in turns where they are large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aoe.execute.messages import ModelPart, WorkerSetup
from aoe.measurement.memory import MemoryUse
from aoe.ort.inputs import ModelInputs
from aoe.ort.profile import profile_model
from aoe.ort.sessions import plain_run, run_session, session_options

if TYPE_CHECKING:
    import onnxruntime as ort


def open_part(setup: WorkerSetup, part: ModelPart) -> ort.InferenceSession:
    """Return a session that computes with the threads of the worker.

    Raises:
        RunError: ONNX Runtime refuses the model.
    """
    options = session_options(
        threads=setup.target.core_num,
        optimize=part.optimize,
        pool=setup.pool,
        library=part.library,
    )
    return setup.device.open_session(part.model, options)


def open_and_run(
    setup: WorkerSetup, part: ModelPart, inputs: ModelInputs
) -> tuple[ort.InferenceSession, list[Any], MemoryUse | None]:
    """Return a session that has run once, on the first inputs, its results, and the memory it took.

    Raises:
        RunError: ONNX Runtime refuses the model, or its inputs.
    """
    taken = setup.device.watch_memory(part.model.parent)
    session = open_part(setup, part)
    results = run_session(session, inputs.first(session))
    return session, results, taken()


def node_times(
    setup: WorkerSetup, models: Sequence[ModelPart], inputs: ModelInputs, most_s: float
) -> list[dict[str, float]]:
    """Return the shortest time of each node of models, one profiled after the other, in us.

    Medians of a few runs lie 10 % apart on a busy machine, the shortest times 3 %.

    Args:
        setup: Of the worker.
        models: Run as they are written.
        inputs: What they are run on.
        most_s: Seconds after which the least runs will do.

    Raises:
        RunError: ONNX Runtime refuses a model, or its inputs.
    """
    profiles = (
        profile_model(
            part.model,
            setup.directory,
            setup.device.open_session,
            threads=setup.target.core_num,
            most_s=most_s / len(models),
            inputs=inputs,
            library=part.library,
            pool=setup.pool,
        )
        for part in models
    )
    return [dict(profile.node_min_us) for profile in profiles]


class SessionsInTurns:
    """Models of which one is loaded at a time, so that there is memory for one only.

    Whoever has its turn is loaded where it is not, and has run before it is timed.

    Args:
        setup: Of the worker.
        parts: The models.
        inputs: What they are run on.
    """

    def __init__(self, setup: WorkerSetup, parts: Sequence[ModelPart], inputs: ModelInputs) -> None:
        self._setup = setup
        self._parts = parts
        self._inputs = inputs
        self._loaded: tuple[int, Callable[[], object]] | None = None

    def unload(self) -> None:
        """Make room for another model."""
        self._loaded = None

    def first_run(
        self, side: int
    ) -> tuple[list[dict[str, Any]], list[list[Any]], MemoryUse | None]:
        """Return all sets of inputs, the results of a model on each, and the memory it took.

        Raises:
            RunError: ONNX Runtime refuses the model, or its inputs.
        """
        self._loaded = None
        session, _, memory = open_and_run(self._setup, self._parts[side], self._inputs)
        feeds = list(self._inputs.feeds(session))
        results = [run_session(session, feed) for feed in feeds]
        self._keep(side, session)
        return feeds, results, memory

    def loaded(self, side: int) -> Callable[[], object]:
        """Return a run of a model that is loaded now, the only one that is.

        Raises:
            RunError: ONNX Runtime refuses the model, or its inputs.
        """
        if self._loaded is None or self._loaded[0] != side:
            self._loaded = None  # gone before the next one comes
            session, _, _ = open_and_run(self._setup, self._parts[side], self._inputs)
            self._keep(side, session)
        assert self._loaded is not None
        return self._loaded[1]

    def timer(self, side: int, *, repeats: int) -> Callable[[], float]:
        """Return `Device.timer` of calls of a model; loading does not count."""

        def sample() -> float:
            return self._setup.device.timer(self.loaded(side), repeats=repeats)()

        return sample

    def _keep(self, side: int, session: ort.InferenceSession) -> None:
        run = plain_run(session, self._inputs.first(session))
        run()
        self._loaded = (side, run)
