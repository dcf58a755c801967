"""Options and variables of CANN's AOE that are not for this engine: what to do instead.

What changes nothing here is said in a warning and passed over; what would change the result is
refused. Source: AOE documentation, command line and environment variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoe.errors import OptionError

_ANY = frozenset({"*"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHere:
    """An option or a variable of AOE.

    Attributes:
        why: Why there is no such thing here.
        instead: What to do.
        harmless: Values that can be passed over, `*` for all; others are refused.
        is_flag: True if it has no value, or need not have one.
    """

    why: str
    instead: str = ""
    harmless: frozenset[str] = frozenset()
    is_flag: bool = False


def _ignored(why: str, instead: str = "", *, is_flag: bool = False) -> NotHere:
    return NotHere(why=why, instead=instead, harmless=_ANY, is_flag=is_flag)


_MODEL_CHANGED = NotHere(
    why="the model is tuned as it is", instead="change it before, or when it is exported"
)
_REMOTE = NotHere(
    why="it names an NCS server of a device",
    instead="run aoe on the machine it is for, or spread a run with --workers=tcp://HOST:PORT",
)
_BANKS = NotHere(why="the bank is named by a variable", instead="export TUNE_BANK_PATH=DIR")

OPTIONS: Mapping[str, NotHere] = {
    "--Fdeeper_opat": _ignored("searches are as deep as --trials says", is_flag=True),
    "--Fop_format": _ignored("formats are not tuned operator by operator", is_flag=True),
    "--build_bypass": _MODEL_CHANGED,
    "--compress_weight_conf": _MODEL_CHANGED,
    "--host_env_cpu": _ignored("the model is tuned for this machine"),
    "--host_env_os": _ignored("the model is tuned for this machine"),
    "--input_format": NotHere(
        why="the layout is that of the model",
        instead="leave it out",
        harmless=frozenset({"NCHW", "ND"}),
    ),
    "--input_fp16_nodes": _MODEL_CHANGED,
    "--insert_op_conf": _MODEL_CHANGED,
    "--ip": _REMOTE,
    "--keep_dtype": NotHere(
        why="kept are the operators a list names", instead="--modify_mixlist=FILE"
    ),
    "--mdl_bank_path": _BANKS,
    "--op_bank_path": _BANKS,
    "--op_debug_level": _ignored("there is no log", "--debug shows tracebacks"),
    "--op_name_map": _MODEL_CHANGED,
    "--op_precision_mode": NotHere(
        why="precision is chosen operator by operator", instead="--modify_mixlist=FILE"
    ),
    "--output_type": _MODEL_CHANGED,
    "--port": _REMOTE,
    "--precision_mode_v2": NotHere(why="its names differ", instead="--precision_mode=MODE"),
    "--reload": _ignored(
        "a run goes on from the bank by itself: what was found is not searched again", is_flag=True
    ),
    "--singleop": NotHere(
        why="a model is what is tuned", instead="make an ONNX model of the operator"
    ),
    "--virtual_type": NotHere(
        why="there is no virtual processor", instead="leave it out", harmless=frozenset({"0"})
    ),
}
VARIABLES: Mapping[str, NotHere] = {
    "AOE_MODE": _ignored(
        "a run is asked for by name", "--job_type, or aoe.torch and aoe.tensorflow in a script"
    ),
    "MAX_COMPILE_CORE_NUMBER": _ignored("as many compile as there are cores"),
    "ASCEND_PROCESS_LOG_PATH": _ignored("there is no log", "--debug shows tracebacks"),
    "ENABLE_TUNE_DUMP": _ignored("models are dumped from PyTorch", "aoe.torch.set_aoe"),
    "TUNE_DUMP_PATH": _ignored("models are dumped from PyTorch", "aoe.torch.set_aoe"),
    "TUNING_PARALLEL_NUM": _ignored("it is a key of aoe.ini", "write it there, below [COMMON]"),
    "TUNE_OPS_NAME": _ignored("operators are chosen in a file", "--tune_ops_file=FILE"),
}


def without_elsewhere(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command line without what belongs to CANN's AOE only, and warnings about that.

    Raises:
        OptionError: an option would change the result there, and cannot here.
    """
    kept: list[str] = []
    warnings: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, has_value, value = word.partition("=")
        option = OPTIONS.get(name)
        if option is None:
            kept.append(word)
            continue
        if not has_value and left and not left[0].startswith("-") and not option.is_flag:
            value = left.pop(0)
        warnings.append(_passed_over(name, value, option))
    return kept, warnings


def warnings_of(env: Mapping[str, str]) -> list[str]:
    """Return warnings about variables of AOE that are set and not for this engine.

    Raises:
        OptionError: one asks for something there is not here.
    """
    return [
        _passed_over(name, env[name], variable)
        for name, variable in VARIABLES.items()
        if env.get(name)
    ]


def _passed_over(name: str, value: str, option: NotHere) -> str:
    """Return the warning about something harmless.

    Raises:
        OptionError: it is not.
    """
    if "*" not in option.harmless and value not in option.harmless:
        raise OptionError(
            name,
            f"of CANN's AOE, not supported here: {option.why}",
            got=value or None,
            hint=option.instead,
        )
    instead = f"; {option.instead}" if "*" in option.harmless and option.instead else ""
    return f"{name} is of CANN's AOE and changes nothing here: {option.why}{instead}"
