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
_STATIC = NotHere(
    why="a kernel is made for one shape",
    instead="--input_shape once for each shape, or --dynamic_dims",
)
_ONE_MACHINE = NotHere(
    why="a model is computed by one machine", instead="leave it out, or split the model before"
)
_MEMORY = _ignored("ONNX Runtime plans memory by itself")
_FUSIONS = _ignored("fusions are tried and measured, and taken where they gain")
_ENGINE = _ignored("it is of CANN's graph engine, which computes nothing here")
_DEBUG = _ignored("there is no such file", "--debug shows tracebacks")
_SWITCHES = frozenset({"0", "1", "true", "false"})
"""Values of a flag that may stand behind a space."""

OPTIONS: Mapping[str, NotHere] = {
    "--Fdeeper_opat": _ignored("searches are as deep as --trials says", is_flag=True),
    "--Fop_format": _ignored("formats are not tuned operator by operator", is_flag=True),
    "--ac_parallel_enable": _ENGINE,
    "--allow_hf32": NotHere(
        why="a CPU has no HF32",
        instead="--precision_mode=allow_fp32_to_bf16",
        harmless=frozenset({"false"}),
    ),
    "--atomic_clean_policy": _MEMORY,
    "--auto_tune_mode": NotHere(
        why="AOE took its place", instead="--job_type of aoe, or --aoe_mode of aoe compile"
    ),
    "--buffer_optimize": _MEMORY,
    "--build_bypass": _MODEL_CHANGED,
    "--build_config": _ENGINE,
    "--cal_conf": NotHere(
        why="int8 is chosen operator by operator",
        instead="--precision_mode=allow_mix_precision_int8 --calibration=DIR",
    ),
    "--check_report": _DEBUG,
    "--cluster_config": _ONE_MACHINE,
    "--compress_weight_conf": _MODEL_CHANGED,
    "--compression_optimize_conf": _MODEL_CHANGED,
    "--core_type": _ignored("there are no vector cores"),
    "--customize_dtypes": NotHere(
        why="precision is chosen operator by operator", instead="--modify_mixlist=FILE"
    ),
    "--debug_dir": _DEBUG,
    "--deterministic_level": NotHere(
        why="kernels give the same bits in each run",
        instead="--strict_fp32 leaves out kernels that transform sums",
        harmless=frozenset({"0", "1"}),
    ),
    "--device_id": _ignored("a run may use every core", "--device=N pins a tuning to a NUMA node"),
    "--disable_reuse_memory": _MEMORY,
    "--display_model_info": NotHere(
        why="a command of its own tells it",
        instead="aoe inspect FILE.om",
        harmless=frozenset({"0"}),
    ),
    "--distributed_cluster_build": _ONE_MACHINE,
    "--dump_mode": NotHere(
        why="shapes are in the model",
        instead="aoe inspect FILE.om",
        harmless=frozenset({"0"}),
    ),
    "--enable_attr_compression": _ENGINE,
    "--enable_compress_weight": NotHere(
        why="the model is tuned as it is",
        instead="compress it before",
        harmless=frozenset({"false"}),
    ),
    "--enable_graph_parallel": _ONE_MACHINE,
    "--enable_scope_fusion_passes": _ignored(
        "tf2onnx converts TensorFlow's graph, and subgraph tuning tries every fusion it knows"
    ),
    "--enable_single_stream": _ENGINE,
    "--enable_small_channel": _ignored("layouts are chosen with the kernel", is_flag=True),
    "--export_compile_stat": _ENGINE,
    "--external_weight": _ignored("an .om file holds its weights"),
    "--fusion_switch_file": _FUSIONS,
    "--graph_parallel_option_path": _ONE_MACHINE,
    "--hccl_sub_comm_config": _ONE_MACHINE,
    "--host_env_cpu": _ignored("the model is tuned for this machine"),
    "--host_env_os": _ignored("the model is tuned for this machine"),
    "--input_format": NotHere(
        why="the layout is that of the model",
        instead="leave it out",
        harmless=frozenset({"NCHW", "ND"}),
    ),
    "--input_fp16_nodes": _MODEL_CHANGED,
    "--input_hint_shape": _STATIC,
    "--input_shape_range": _STATIC,
    "--insert_op_conf": _MODEL_CHANGED,
    "--ip": _REMOTE,
    "--is_input_adjust_hw_layout": NotHere(
        why="inputs keep their layout", instead="leave it out", harmless=frozenset({"false"})
    ),
    "--is_output_adjust_hw_layout": NotHere(
        why="results keep their layout", instead="leave it out", harmless=frozenset({"false"})
    ),
    "--is_weight_clip": _ignored("weights are taken as they are"),
    "--jit_compile": _ENGINE,
    "--keep_dtype": NotHere(
        why="kept are the operators a list names", instead="--modify_mixlist=FILE"
    ),
    "--mdl_bank_path": _BANKS,
    "--mode": NotHere(
        why="a model becomes a tuned one, and nothing else",
        instead="aoe inspect FILE.om tells what one holds",
        harmless=frozenset({"0"}),
    ),
    "--model_relation_config": _ONE_MACHINE,
    "--oo_level": _FUSIONS,
    "--op_bank_path": _BANKS,
    "--op_debug_config": _DEBUG,
    "--op_debug_level": _ignored("there is no log", "--debug shows tracebacks"),
    "--op_name_map": _MODEL_CHANGED,
    "--op_precision_mode": NotHere(
        why="precision is chosen operator by operator", instead="--modify_mixlist=FILE"
    ),
    "--op_select_implmode": _ignored("kernels keep float32", "--accuracy bounds what may be lost"),
    "--optimization_switch": _FUSIONS,
    "--optypelist_for_implmode": _ignored(
        "kernels keep float32", "--accuracy bounds what may be lost"
    ),
    "--output_type": _MODEL_CHANGED,
    "--port": _REMOTE,
    "--precision_mode_v2": NotHere(why="its names differ", instead="--precision_mode=MODE"),
    "--quant_dumpable": _DEBUG,
    "--raw_ge_options": _ENGINE,
    "--raw_ge_options_ignore_unsupported": _ignored(
        "it is of CANN's graph engine, which computes nothing here", is_flag=True
    ),
    "--reload": _ignored(
        "a run goes on from the bank by itself: what was found is not searched again", is_flag=True
    ),
    "--save_original_model": _ignored("an .om file holds the untuned model too"),
    "--shape_generalized_build_mode": NotHere(
        why="a kernel is made for one shape",
        instead="--input_shape once for each shape",
        harmless=frozenset({"shape_precise"}),
    ),
    "--shard_model_dir": _ONE_MACHINE,
    "--singleop": NotHere(
        why="a model is what is tuned", instead="make an ONNX model of the operator"
    ),
    "--sparsity": NotHere(
        why="the model is tuned as it is",
        instead="leave it out",
        harmless=frozenset({"0"}),
    ),
    "--static_model_ops_lower_limit": _ENGINE,
    "--status_check": _DEBUG,
    "--tiling_schedule_optimize": _ENGINE,
    "--topo_sorting_mode": _ENGINE,
    "--virtual_type": NotHere(
        why="there is no virtual processor", instead="leave it out", harmless=frozenset({"0"})
    ),
}
ATC_OPTIONS: Mapping[str, NotHere] = {
    "--log": _ignored("there is no log", "--debug shows tracebacks"),
    "--om": NotHere(
        why="it is for turning an .om into text", instead="aoe inspect FILE.om tells what one holds"
    ),
}
"""Options of atc that `aoe` has and `aoe compile` has not."""
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


def without_elsewhere(
    arguments: Sequence[str], options: Mapping[str, NotHere] = OPTIONS
) -> tuple[list[str], list[str]]:
    """Return a command line without what belongs to CANN's AOE only, and warnings about that.

    Args:
        arguments: Of the command line.
        options: Those it looks for.

    Raises:
        OptionError: an option would change the result there, and cannot here.
    """
    kept: list[str] = []
    warnings: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, has_value, value = word.partition("=")
        option = options.get(name)
        if option is None:
            kept.append(word)
            continue
        may_follow = not has_value and left and not left[0].startswith("-")
        if may_follow and (not option.is_flag or left[0] in _SWITCHES):
            value = left.pop(0)
        warnings.append(_passed_over(name, value, option))
    return kept, warnings


def without_atc_only(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command line of `aoe compile` without what belongs to CANN's atc only, and warnings.

    Raises:
        OptionError: an option would change the result there, and cannot here.
    """
    taken = ("--op_bank_path", "--mdl_bank_path")
    known = {**OPTIONS, **ATC_OPTIONS}
    options = {name: option for name, option in known.items() if name not in taken}
    switched = [word for word in arguments if word != "--deterministic=0"]
    words = ["--deterministic" if word == "--deterministic=1" else word for word in switched]
    return without_elsewhere(words, options)


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
