"""`aoe.InferenceSession`: ONNX Runtime's session, with what the bank has for the model."""

from __future__ import annotations

import hashlib
import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import onnx

from aoe.bank.built_in import built_in_bank
from aoe.bank.operators import custom_banks
from aoe.device.registry import default_device
from aoe.entry.external_weights import weight_locations
from aoe.entry.protocol import written_model
from aoe.entry.shape_range import (
    RangeShape,
    holds,
    is_range,
    parse_shape_range,
    range_form,
)
from aoe.errors import FallbackWarning, OptionError, unknown_name
from aoe.graph.extents import NamedExtents
from aoe.om.loading import OperatorFiles, operator_paths
from aoe.online.conversions import ConvertingProcess, StartConversion
from aoe.online.kept import BankRoots, KeptModels
from aoe.online.large import (
    WeightFiles,
    light_options,
    may_wait,
    readable_content,
    structure_of,
    weight_files,
)
from aoe.online.work import Background, ServedModelFile, ServedShape, ShapeWork, TuningLimits
from aoe.ort.custom_operators import options_with_operators
from aoe.ort.serving.given_options import adjusting, reason_against_tuned_models
from aoe.ort.serving.swapping import CallForm, Substitutes, SwappingSession, plain_session
from aoe.ort.sessions import InputSpec, lacking_operator
from aoe.runs.configuration.options import read_option
from aoe.settings import cache_limit, cache_path, environment, parse_whole, with_bank
from aoe.tuner.parts import library_versions
from aoebank import RichDisplay

if TYPE_CHECKING:
    import onnxruntime as ort

_Given = tuple[Any, ...]
"""Model, options and providers, as `onnxruntime.InferenceSession` takes them."""
_OWN_OPTIONS = (
    *("bank", "tune", "tuning_time_limit_s", "trials", "accept_busy", "most_forms"),
    *("custom_ops_library", "input_shape"),
    *("disabled_optimizers", "enable_fallback", "read_config_from_model"),
)


class InferenceSession(RichDisplay, SwappingSession):
    """A session of `onnxruntime`, computed with the kernels the bank has for its model.

    It is called as `onnxruntime.InferenceSession`, and is one. What the bank has is looked up when
    the session is made, for a model that leaves shapes open when they are first seen, in the
    background; a conversion is kept for the next start. With `tune`, the model is tuned in the
    background too, by a process of the lowest priority that takes turns with others that measure,
    and the better model is swapped in between two calls. Calls of other shapes, and those that are
    wrong, are ONNX Runtime's as ever. Of a model of several GiB there is one session at a time: the
    untuned one is loaded when nothing better was found.

    Args:
        path_or_bytes: File of an ONNX model, its bytes, or the model in memory.
        sess_options: Of `onnxruntime`. Its number of intra-op threads is what is looked up and
            tuned for, 0 for every usable core.
        providers: At most the CPU's.
        provider_options: None, or an empty mapping for each provider.
        bank: Root of the bank, made if it is missing; None for what `TUNE_BANK_PATH` and the other
            variables say.
        tune: Whether the shapes the session is called with are tuned in the background.
        tuning_time_limit_s: Seconds for each of them; None for no limit.
        trials: Most candidates measured for one operator; None for the default.
        accept_busy: Whether figures taken on a busy machine are believed; None for what
            `AOE_ACCEPT_BUSY` says.
        input_shape: A range of shapes, `"ids:1~8,1~512"`, for a model that leaves them open: one
            tuned model is made for all calls within it, instead of one for each shape.
        custom_ops_library: The library, or libraries, with operators ONNX Runtime does not have;
            here, and not with `sess_options`, so that the tuned model has them too.
        most_forms: How many shapes something is done for, those called most often first.
        **options: `disabled_optimizers`, `enable_fallback` and `read_config_from_model` of
            `onnxruntime`.

    Raises:
        OptionError: another provider, or an option that does not exist.
        ModelImportError: ONNX Runtime does not compute the opset of the model, nor is there an
            older one in which its operators mean the same.
        AoebankError: the bank cannot be used.

    What else is wrong with the model is said by ONNX Runtime's own exceptions.

    Attributes:
        fallback_reason: What of the options no tuned model can have, so that ONNX Runtime computes
            every call; the empty string where there is nothing.
    """

    shown_by = "aoe.report.tuned_model:ServedSessionReport"
    rows_in = "forms"
    start_conversion: ClassVar[StartConversion] = ConvertingProcess

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str] | onnx.ModelProto,
        sess_options: ort.SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        bank: str | os.PathLike[str] | None = None,
        tune: bool = False,
        tuning_time_limit_s: float | None = 600.0,
        trials: int | None = None,
        accept_busy: bool | None = None,
        input_shape: str | None = None,
        custom_ops_library: OperatorFiles = (),
        most_forms: int = 8,
        **options: Any,
    ) -> None:
        provider = default_device().provider()
        _check_options(options)
        most_forms = parse_whole("most_forms", most_forms)
        limits = _limits_of(tuning_time_limit_s, trials, accept_busy)
        _check_providers(providers, provider)
        _check_model(path_or_bytes)
        self._range = _range_of(input_shape)
        self._range_shapes = {
            name: tuple(map(range_form, shape)) for name, shape in self._range.items()
        }
        if isinstance(path_or_bytes, onnx.ModelProto):
            path_or_bytes = written_model(path_or_bytes, "model")
        operators = operator_paths(custom_ops_library)
        sess_options = options_with_operators(sess_options, operators)
        self.fallback_reason, outside = _looked_into(path_or_bytes, sess_options, options)
        if self.fallback_reason:
            most_forms = 0
        given = (path_or_bytes, sess_options, [provider], provider_options)
        substitutes = Substitutes()
        waits = outside.is_large and bool(most_forms) and may_wait(sess_options)
        if not (waits and self._opens_lightly(substitutes, path_or_bytes, operators)):
            waits = False
            given = self._opened(substitutes, given, options)
        _check_range(self._range, self._inputs)
        self._names = NamedExtents({one.name: one.shape for one in self.get_inputs()})
        self._untuned = partial(plain_session, *given, **options) if waits else None
        env = environment()
        if bank is not None:
            env = with_bank(env, Path(bank), writes=tune)
        threads = sess_options.intra_op_num_threads if sess_options is not None else 0
        target = default_device().describe(threads or None)
        work = _make_work(
            _model_file(path_or_bytes, outside.files, operators),
            target.core_num,
            env,
            _bank_roots(env, target.soc_version, writes=tune),
            limits,
            substitutes,
            adjusting(sess_options),
            self.start_conversion,
        )
        self.background = Background(work, tune=tune, most_forms=most_forms)
        self._end = weakref.finalize(self, self.background.close)
        if self.fallback_reason:
            self._warn(self.fallback_reason)
        if self.static_form is not None and most_forms:
            found = self.background.look_up_now(self.static_form)
            if found.problem:
                self._warn(f"the bank cannot be used for it: {found.problem}")
            if not found.is_tuned:
                self._load_untuned()

    @property
    def forms(self) -> tuple[ServedShape, ...]:
        """The shapes the session was called with, and what computes them."""
        return self.background.forms

    def wait_for_tuning(self, timeout_s: float | None = None) -> bool:
        """Wait until the background has nothing left to do.

        Args:
            timeout_s: Longest wait in seconds; None for as long as it takes.

        Returns:
            True if there is nothing left to do.
        """
        return self.background.wait(timeout_s)

    def close(self) -> None:
        """End the work in the background; the session goes on with what it has.

        It ends with the session and with the process, too.
        """
        self._end()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_session_options(self) -> ort.SessionOptions:
        """Return the options it was made with; see `onnxruntime.InferenceSession`."""
        given = None if self._untuned is None else self._untuned.args[1]
        return super().get_session_options() if given is None else given

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Refuse every provider but that of the CPU, which there is already."""
        _check_providers(providers, default_device().provider())

    def _opened(
        self, substitutes: Substitutes, given: _Given, options: Mapping[str, Any]
    ) -> _Given:
        """Open the model, in an older opset where ONNX Runtime does not compute its own.

        Returns:
            What it was opened with.
        """
        try:
            super().__init__(substitutes, *given, **options)
        except Exception as error:
            lacks = lacking_operator(error) is not None
            found = readable_content(given[0]) if lacks else None
            if found is None:
                raise
            given = (found, *given[1:])
            super().__init__(substitutes, *given, **options)
        return given

    def _opens_lightly(
        self, substitutes: Substitutes, model: object, operators: Sequence[Path]
    ) -> bool:
        """Open a model of one shape without reading its weights; return False if that cannot be."""
        provider = default_device().provider()
        try:
            super().__init__(
                substitutes, model, light_options(operators), [provider], enable_fallback=0
            )
        except Exception:  # what is wrong is said when it is opened as it was asked for
            return False
        return self.static_form is not None  # calls of any shape may be its own

    def _sought(self, form: CallForm) -> CallForm:
        if not self._range:
            return form
        shapes = {name: tuple(map(int, shape)) for name, _, shape in form}
        if not holds(self._range, shapes) or not self._names.agree(shapes):
            return form
        return tuple((name, kind, self._range_shapes.get(name, own)) for name, kind, own in form)

    def _saw(self, form: CallForm) -> None:
        if self.static_form is None:
            self.background.saw(form)

    def _gave_up(self, error: Exception) -> None:
        self._warn(f"the tuned one failed: {error}")
        self._load_untuned()

    def _load_untuned(self) -> None:
        """Let a session of the model itself compute, where it was not worth its memory before."""
        if self._untuned is not None and self.substitutes.find(self.static_form) is None:
            self.substitutes.offer(self.static_form, self._untuned())

    def _warn(self, reason: str) -> None:
        text = f"running the untuned model: {reason}"
        warnings.warn(text, FallbackWarning, stacklevel=3)


def _range_of(text: str | None) -> dict[str, RangeShape]:
    """Return the range of a session, empty for none.

    Raises:
        OptionError: it cannot be meant, or is one shape.
    """
    if text is None:
        return {}
    if not isinstance(text, str) or not is_range(text):
        raise OptionError(
            "input_shape",
            "no range of shapes",
            got=text,
            expected="LEAST~LARGEST in place of an extent",
            hint="shapes the session is called with need not be named",
        )
    return parse_shape_range(text)


def _check_range(shapes: Mapping[str, RangeShape], inputs: Sequence[InputSpec]) -> None:
    """Refuse a range in which no call of a model can lie."""
    if not shapes:
        return
    known = {spec.name: spec for spec in inputs}
    for name, shape in shapes.items():
        own = known[name].shape if name in known else ()
        extents = ",".join("-1" if extent is None else str(extent) for extent in own)
        fits = len(own) == len(shape) and all(
            one is None or one == given for one, given in zip(own, shape, strict=True)
        )
        if not fits:
            raise OptionError(
                "input_shape",
                "the range is not one of the model's input" if name in known else "no such input",
                got=name if name not in known else f"{name}:{','.join(map(str, shape))}",
                expected=f"{name}:{extents}" if name in known else ", ".join(known),
            )
    for spec in inputs:
        if spec.name not in shapes and None in spec.shape:
            raise OptionError(
                "input_shape", "nothing is said of an input with open extents", expected=spec.name
            )


def _looked_into(
    model: str | bytes | os.PathLike[str],
    given: ort.SessionOptions | None,
    named: Mapping[str, object],
) -> tuple[str, WeightFiles]:
    """Return a reason against tuned models, or the empty string, and the files of the weights."""
    is_asked = given is not None or not isinstance(model, bytes)  # else parsing is for nothing
    proto = structure_of(model) if is_asked else None
    reason = reason_against_tuned_models(
        given,
        named,
        proto,
        locations=weight_locations(proto) if proto is not None else (),
        open_session=default_device().open_session,
    )
    if reason or isinstance(model, bytes):
        return reason, WeightFiles()
    return reason, weight_files(proto, Path(model))


def _bank_roots(env: Mapping[str, str], soc_version: str, *, writes: bool) -> BankRoots:
    cwd = Path.cwd()
    custom, built_in = custom_banks(env, cwd, writes=writes), built_in_bank(env, cwd)
    return BankRoots(
        soc_version=soc_version,
        roots=(*custom.roots, *((built_in.root,) if built_in is not None else ())),
        union=custom.union,
    )


def _make_work(
    model: ServedModelFile,
    core_num: int,
    env: Mapping[str, str],
    banks: BankRoots,
    limits: TuningLimits,
    substitutes: Substitutes,
    adjust: Callable[[ort.SessionOptions], None],
    start: StartConversion,
) -> ShapeWork:
    return ShapeWork(
        model=model,
        core_num=core_num,
        limits=limits,
        banks=banks,
        versions=library_versions(),
        kept=KeptModels(cache_path(env), cache_limit(env)),
        env={name: value for name, value in env.items() if name != "ASCEND_WORK_PATH"},
        substitutes=substitutes,
        adjust=adjust,
        start=start,
    )


def _model_file(
    model: str | bytes | os.PathLike[str], weights: Sequence[Path], operators: Sequence[Path]
) -> ServedModelFile:
    content = model if isinstance(model, bytes) else None
    # the script may be in another directory when its turn comes; weights lie beside a link
    path = None if isinstance(model, bytes) else Path(model).absolute()
    operators = [library.absolute() for library in operators]
    sha256 = hashlib.sha256(content or b"")
    files = (path, *weights) if path is not None else ()
    for file in (*files, *operators):
        with file.open("rb") as source:
            sha256.update(hashlib.file_digest(source, "sha256").digest())
    return ServedModelFile(
        path=path, content=content, sha256=sha256.hexdigest(), operators=tuple(operators)
    )


def _check_model(model: object) -> None:
    if isinstance(model, str | os.PathLike) and Path(model).suffix == ".om":
        raise OptionError(
            "aoe.InferenceSession",
            "a tuned model, not one that can be tuned",
            got=model,
            expected="an ONNX model",
            hint="aoe.load() runs tuned models",
        )


def _limits_of(
    tuning_time_limit_s: float | None, trials: int | None, accept_busy: bool | None
) -> TuningLimits:
    """Return the limits of the tunings of a session.

    Raises:
        OptionError: one is no number, or out of range.
    """
    return TuningLimits(
        tuning_time_limit_s=read_option("tuning_time_limit_s", tuning_time_limit_s),
        trials=read_option("trials", trials),
        accept_busy=accept_busy,
    )


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _OWN_OPTIONS:
            raise unknown_name("aoe.InferenceSession", "unknown option", name, _OWN_OPTIONS)


def _check_providers(providers: Sequence[Any] | None, known: str) -> None:
    for given in providers or ():
        name = given[0] if isinstance(given, tuple | list) and given else given
        if name != known:
            raise OptionError(
                "providers",
                "only the CPU is tuned",
                got=name,
                expected=known,
                hint="onnxruntime.InferenceSession runs on other devices",
            )
