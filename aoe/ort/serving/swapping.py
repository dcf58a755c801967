"""A session that leaves calls to others, which may be swapped between two of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime as ort

from aoe.ort.sessions import InputSpec, input_specs, numpy_type

CallForm = tuple[tuple[str, str, tuple[int | str, ...]], ...]
"""Name, element type and shape of every array of a call, by name; `1~8` for an extent that may be
anything between, where calls of many shapes are computed by one session."""


_NO_POOL = "thread pool must have at least one thread"
"""ONNX Runtime's refusal of `run_async` by a session of one thread."""


def form_of(feed: Mapping[str, Any]) -> CallForm | None:
    """Return the form of a call, None if something in it is no array of a known type."""
    parts = []
    for name, value in feed.items():
        if isinstance(value, np.ndarray):
            kind, shape = value.dtype, value.shape
        elif isinstance(value, ort.OrtValue) and value.is_tensor():
            kind, shape = numpy_type(value.data_type()), tuple(value.shape())
        else:
            return None
        if kind is None:
            return None
        parts.append((name, "object" if kind.kind in "OUS" else kind.name, shape))
    return tuple(sorted(parts))


def declared_form(specs: Sequence[InputSpec]) -> CallForm | None:
    """Return the only form of calls a session takes, None if it takes several."""
    parts = []
    for spec in specs:
        shape = tuple(extent for extent in spec.shape if extent is not None)
        if spec.dtype is None or len(shape) < len(spec.shape):
            return None
        parts.append((spec.name, spec.dtype.name, shape))
    return tuple(sorted(parts))


def plain_session(*arguments: Any, **named: Any) -> ort.InferenceSession:
    """Return ONNX Runtime's own session; see there for the arguments."""
    return ort.InferenceSession(*arguments, **named)


class Substitutes:
    """Sessions by the form of calls they compute; looked up without a lock, changed as a whole."""

    def __init__(self) -> None:
        self._sessions: Mapping[CallForm, ort.InferenceSession] = {}
        self._change = threading.Lock()

    def find(self, form: CallForm | None) -> ort.InferenceSession | None:
        """Return the session that computes calls of a form; its holder may use it to the end."""
        return self._sessions.get(form) if form is not None else None

    def put(self, form: CallForm, session: ort.InferenceSession) -> None:
        """Let a session compute calls of a form from the next one on."""
        with self._change:
            self._sessions = {**self._sessions, form: session}

    def offer(self, form: CallForm | None, session: ort.InferenceSession) -> None:
        """Let a session compute calls of a form unless another one does."""
        with self._change:
            if form is not None and form not in self._sessions:
                self._sessions = {**self._sessions, form: session}

    def drop(self, session: ort.InferenceSession) -> bool:
        """Let nobody use a session any more; return whether anybody would have."""
        with self._change:
            kept = {form: one for form, one in self._sessions.items() if one is not session}
            was_there = len(kept) < len(self._sessions)
            self._sessions = kept
        return was_there

    def all(self) -> tuple[ort.InferenceSession, ...]:
        """Return the sessions there are now."""
        return tuple(self._sessions.values())


class SwappingSession(ort.InferenceSession):  # type: ignore[misc]
    """ONNX Runtime's session of a model, with substitutes for some forms of calls.

    A call goes to the substitute for its form if there is one, else to the model itself: so do
    calls that are wrong, and the error is ONNX Runtime's. Any number of threads may call at once
    while substitutes come and go; a call ends on the session it began on.

    Args:
        substitutes: Who computes what; filled by somebody else.
        arguments: As `onnxruntime.InferenceSession` takes them.
    """

    def __init__(self, substitutes: Substitutes, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.substitutes = substitutes
        self._inputs = input_specs(self)
        self.static_form = declared_form(self._inputs)
        self._async_calls = ThreadPoolExecutor(1, "run_async")  # starts a thread when it is used

    def _sought(self, form: CallForm) -> CallForm:
        """Return the form under which the substitute for calls of a form is kept."""
        return form

    def _saw(self, form: CallForm) -> None:
        """Is told the form of every call that the model itself computes, unless it is wrong."""

    def _gave_up(self, error: Exception) -> None:
        """Is told that a substitute failed where the model did not; nobody uses it any more."""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> Any:
        """Compute the outputs; see `onnxruntime.InferenceSession.run`."""
        return self._tried(
            input_feed,
            lambda session: session.run(output_names, input_feed, run_options),
            lambda: super(SwappingSession, self).run(output_names, input_feed, run_options),
        )

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: Any = None,
    ) -> Any:
        """Compute the outputs of `OrtValue`s; see `onnxruntime.InferenceSession`."""
        given = (output_names, input_dict_ort_values, run_options)
        return self._tried(
            input_dict_ort_values,
            lambda session: session.run_with_ort_values(*given),
            lambda: super(SwappingSession, self).run_with_ort_values(*given),
        )

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[..., Any],
        user_data: Any,
        run_options: Any = None,
    ) -> Any:
        """Compute the outputs and call back; see `onnxruntime.InferenceSession`.

        ONNX Runtime refuses such calls where a session has one thread, as the substitutes have on
        one core. The calls of such a session are computed one after another by a thread of ours.
        """
        session = self._session_for(input_feed)
        if session is None:
            begin, run = super().run_async, super().run
        else:
            begin, run, callback = session.run_async, session.run, _Held(session, callback)
        try:
            return begin(output_names, input_feed, callback, user_data, run_options)
        except Exception as error:  # onnxruntime raises its own unrelated classes
            if _NO_POOL not in str(error):
                raise

        def compute() -> None:
            try:
                outputs, problem = run(output_names, input_feed, run_options), ""
            except Exception as error:
                outputs, problem = [], str(error)
            callback(outputs, user_data, problem)

        # what the callback raises is logged
        self._async_calls.submit(compute).add_done_callback(Future.result)
        return None

    def io_binding(self) -> HeldBinding:
        """Return a binding to whom computes a model of fixed shapes now, else to the model itself.

        It stays with that session: ask for a new one to use what was swapped in since.
        """
        return HeldBinding(self, self.substitutes.find(self.static_form))

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> Any:
        """Compute what a binding of this session binds; see `onnxruntime.InferenceSession`."""
        held = iobinding if isinstance(iobinding, HeldBinding) else None
        if held is None or held.substitute is None or held.home is not self:
            return super().run_with_iobinding(iobinding, run_options)
        return held.substitute.run_with_iobinding(iobinding, run_options)

    def end_profiling(self) -> str:
        """End profiling, that of the substitutes too; return the file of the model itself.

        Those of the substitutes lie beside it.
        """
        for session in self.substitutes.all():
            session.end_profiling()
        return str(super().end_profiling())

    def _session_for(self, feed: Mapping[str, Any]) -> ort.InferenceSession | None:
        form = form_of(feed)
        if form is None:
            return None
        sought = self._sought(form)
        session = self.substitutes.find(sought)
        if session is None and self._takes(form):
            self._saw(sought)
        return session

    def _takes(self, form: CallForm) -> bool:
        """True if a call has the extents the model declares."""
        shapes = {name: shape for name, _, shape in form}
        return all(spec.name in shapes and spec.takes(shapes[spec.name]) for spec in self._inputs)

    def _tried(
        self,
        feed: Mapping[str, Any],
        substitute: Callable[[ort.InferenceSession], Any],
        itself: Callable[[], Any],
    ) -> Any:
        """Compute on the substitute; where that fails and the model does not, it is done with."""
        session = self._session_for(feed)
        if session is None:
            return itself()
        try:
            return substitute(session)
        except Exception as error:  # onnxruntime raises its own unrelated classes
            result = itself()  # what is wrong with the call is said here
            if self.substitutes.drop(session):
                self._gave_up(error)
            return result


class HeldBinding(ort.IOBinding):  # type: ignore[misc]
    """A binding that keeps the session it is for.

    Args:
        home: The session it was asked of.
        substitute: Who computes instead; None for nobody.
    """

    def __init__(self, home: SwappingSession, substitute: ort.InferenceSession | None) -> None:
        super().__init__(home if substitute is None else substitute)
        self.home = home
        self.substitute = substitute


class _Held:
    """A callback that keeps a session until it was called."""

    def __init__(self, session: ort.InferenceSession, callback: Callable[..., Any]) -> None:
        self._session: ort.InferenceSession | None = session
        self._callback = callback

    def __call__(self, *arguments: Any) -> Any:
        return self._callback(*arguments)
