"""What belongs to CANN's AOE: its options and variables that are not for this engine, and jobs.

What changes nothing here is said in a warning and passed over; what would change the result is
refused. A job for an Ascend processor (`--soc_version=Ascend...`) is handed to CANN's own `aoe` or
`atc` with the options both have. Source: AOE documentation, command line and environment variables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from platform import machine

from aoe.cli.options import finish
from aoe.errors import OptionError
from aoe.settings import environment
from aoe.tuner.mode import JobType
from aoebank import asked_documents, say

_ANY = frozenset({"*"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHere:
    """An option or a variable of AOE."""

    why: str
    """Why there is no such thing here."""
    instead: str = ""
    """What to do."""
    harmless: frozenset[str] = frozenset()
    """Values that can be passed over, `*` for all; others are refused."""
    is_flag: bool = False
    """True if it has no value, or need not have one."""


def _ignored(why: str, instead: str = "", *, is_flag: bool = False) -> NotHere:
    return NotHere(why=why, instead=instead, harmless=_ANY, is_flag=is_flag)


def _refused(why: str, instead: str = "", *harmless: str) -> NotHere:
    return NotHere(why=why, instead=instead, harmless=frozenset(harmless))


_MODEL_CHANGED = _refused("the model is tuned as it is", "change it before, or when it is exported")
_REMOTE = _refused(
    "it names an NCS server of a device",
    "run aoe on the machine it is for, or spread a run with --workers=tcp://HOST:PORT",
)
_BANKS = _refused("the bank is named by a variable", "export TUNE_BANK_PATH=DIR")
_SHAPES = _refused(
    "shapes and ranges of shapes are named by --input_shape",
    '--input_shape="x:1~8,3", once for each fixed shape, or --dynamic_dims',
)
_ONE_MACHINE = _refused(
    "a model is computed by one machine", "leave it out, or split the model before"
)
_THIS_MACHINE = "the model is tuned for this machine"
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
    "--allow_hf32": _refused("a CPU has no HF32", "--precision_mode=allow_fp32_to_bf16", "false"),
    "--atomic_clean_policy": _MEMORY,
    "--auto_tune_mode": _refused(
        "AOE took its place", "--job_type of aoe, or --aoe_mode of aoe compile"
    ),
    "--buffer_optimize": _MEMORY,
    "--build_bypass": _MODEL_CHANGED,
    "--build_config": _ENGINE,
    "--cal_conf": _refused(
        "int8 is chosen operator by operator",
        "--precision_mode=allow_mix_precision_int8 --calibration=DIR",
    ),
    "--check_report": _DEBUG,
    "--cluster_config": _ONE_MACHINE,
    "--compress_weight_conf": _MODEL_CHANGED,
    "--compression_optimize_conf": _MODEL_CHANGED,
    "--core_type": _ignored("there are no vector cores"),
    "--customize_dtypes": _refused(
        "precision is chosen operator by operator", "--modify_mixlist=FILE"
    ),
    "--debug_dir": _DEBUG,
    "--deterministic_level": _refused(
        "kernels give the same bits in each run",
        "--strict_fp32 leaves out kernels that transform sums",
        "0",
        "1",
    ),
    "--device_id": _ignored("a run may use every core", "--device=N pins a tuning to a NUMA node"),
    "--disable_reuse_memory": _MEMORY,
    "--display_model_info": _refused("a command of its own tells it", "aoe inspect FILE.om", "0"),
    "--distributed_cluster_build": _ONE_MACHINE,
    "--dump_mode": _refused("shapes are in the model", "aoe inspect FILE.om", "0"),
    "--enable_attr_compression": _ENGINE,
    "--enable_compress_weight": _refused(
        "the model is tuned as it is", "compress it before", "false"
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
    "--host_env_cpu": _refused(_THIS_MACHINE, "run aoe on the machine it is for", machine()),
    "--host_env_os": _refused(_THIS_MACHINE, "run aoe on the machine it is for", "linux"),
    "--input_format": _refused("the layout is that of the model", "leave it out", "NCHW", "ND"),
    "--input_fp16_nodes": _MODEL_CHANGED,
    "--input_hint_shape": _SHAPES,
    "--input_shape_range": _SHAPES,
    "--insert_op_conf": _MODEL_CHANGED,
    "--ip": _REMOTE,
    "--is_input_adjust_hw_layout": _refused("inputs keep their layout", "leave it out", "false"),
    "--is_output_adjust_hw_layout": _refused("results keep their layout", "leave it out", "false"),
    "--is_weight_clip": _ignored("weights are taken as they are"),
    "--jit_compile": _ENGINE,
    "--keep_dtype": _refused("kept are the operators a list names", "--modify_mixlist=FILE"),
    "--mdl_bank_path": _BANKS,
    "--mode": _refused(
        "a model becomes a tuned one, and nothing else",
        "aoe inspect FILE.om tells what one holds",
        "0",
    ),
    "--model_relation_config": _ONE_MACHINE,
    "--oo_level": _FUSIONS,
    "--op_bank_path": _BANKS,
    "--op_debug_config": _DEBUG,
    "--op_debug_level": _ignored("there is no log", "--debug shows tracebacks"),
    "--op_name_map": _MODEL_CHANGED,
    "--op_precision_mode": _refused(
        "precision is chosen operator by operator", "--modify_mixlist=FILE"
    ),
    "--op_select_implmode": _ignored("kernels keep float32", "--accuracy bounds what may be lost"),
    "--optimization_switch": _FUSIONS,
    "--optypelist_for_implmode": _ignored(
        "kernels keep float32", "--accuracy bounds what may be lost"
    ),
    "--output_type": _MODEL_CHANGED,
    "--port": _REMOTE,
    "--precision_mode_v2": _refused("its names differ", "--precision_mode=MODE"),
    "--quant_dumpable": _DEBUG,
    "--raw_ge_options": _ENGINE,
    "--raw_ge_options_ignore_unsupported": _ignored(
        "it is of CANN's graph engine, which computes nothing here", is_flag=True
    ),
    "--reload": _ignored(
        "a run goes on from the bank by itself: what was found is not searched again", is_flag=True
    ),
    "--save_original_model": _ignored("an .om file holds the untuned model too"),
    "--shape_generalized_build_mode": _refused(
        "a kernel is made for one shape", "--input_shape once for each shape", "shape_precise"
    ),
    "--shard_model_dir": _ONE_MACHINE,
    "--singleop": _refused("a model is what is tuned", "make an ONNX model of the operator"),
    "--sparsity": _refused("the model is tuned as it is", "leave it out", "0"),
    "--static_model_ops_lower_limit": _ENGINE,
    "--status_check": _DEBUG,
    "--tiling_schedule_optimize": _ENGINE,
    "--topo_sorting_mode": _ENGINE,
    "--virtual_type": _refused("there is no virtual processor", "leave it out", "0"),
}
_TENSORFLOW = re.compile(r"(?:^| )(?:--framework[= ]|-f ?)3(?= |$)")
_LAYOUT_OF_TENSORFLOW = _refused(
    "the layout is that of the model", "leave it out", "NHWC", "NCHW", "ND"
)
"""`--input_format` of TensorFlow models, whose layout is NHWC."""
ATC_OPTIONS: Mapping[str, NotHere] = {
    "--log": _ignored("there is no log", "--debug shows tracebacks"),
    "--om": _refused(
        "it is for turning an .om into text", "aoe inspect FILE.om tells what one holds"
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
    if _TENSORFLOW.search(" ".join(left)):
        options = {**options, "--input_format": _LAYOUT_OF_TENSORFLOW}
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


# ---- jobs of CANN ----

_SHORT = {"-m": "--model", "-w": "--weight", "-j": "--job_type", "-f": "--framework"}
_SHARED = frozenset(
    {
        *_SHORT.values(),
        *("--model_path", "--output", "--input_shape", "--progress_bar", "--aicore_num"),
        *("--precision_mode", "--modify_mixlist", "--device", "--out_nodes", "--singleop"),
        *("--tune_ops_file", "--tune_optimization_level", "--virtual_type", "--reload"),
        *("--Fdeeper_opat", "--Fnonhomo_split", "--Fop_format", "--ip", "--port"),
        *("--dynamic_batch_size", "--dynamic_image_size", "--dynamic_dims"),
    }
)
"""Options of this engine that CANN's aoe has too, under the same names."""
_OWN_FLAGS = frozenset(
    {"--json", "--quiet", "-q", "--debug", "--strict_fp32", "--deterministic", "--anonymous"},
)
_NOT_OF_ATC = (_OWN_FLAGS - {"--deterministic"}) | {
    *("--reports", "--aoe_mode", "--accuracy", "--calibration", "--shapes_from", "--input"),
    *("--inputs", "--custom_ops_library"),
}
"""Options of `aoe compile` that `atc` does not have."""
_NO_JOB = frozenset({"--help", "-h", "--version", "--script"})
_SOC = "--soc_version"
_JOB = "--job_type"


def ascend_target(arguments: Sequence[str]) -> str | None:
    """Return the `--soc_version` of a command line if it names an Ascend processor."""
    if _NO_JOB & {word.partition("=")[0] for word in arguments}:
        return None
    for name, value in _options(arguments):
        if name == _SOC and (value or "").lower().startswith("ascend"):
            return value
    return None


def hand_over(arguments: Sequence[str], soc_version: str) -> int:
    """Run CANN's `aoe` with the options it knows, and return the exit code.

    Raises:
        OptionError: the job is none of CANN's command.
        TargetError: there is no toolkit.
    """
    from aoe.report.cann import CannReport
    from aoe.runs.cann import find_program, run_cann

    env = environment()
    find_program(soc_version, env)
    options, jobs = _handed_over(arguments)
    as_json = asked_documents().printed == "json"
    run = run_cann(
        [[*options, f"{_JOB}={job.number}"] for job in jobs],
        soc_version,
        env=env,
        cwd=Path.cwd(),
        output=sys.stderr if as_json else None,
    )
    return finish(CannReport(run=run), as_json=as_json)


def hand_over_to_atc(arguments: Sequence[str], soc_version: str) -> int:
    """Run CANN's `atc` with the options of `aoe compile` it knows, and return the exit code.

    Raises:
        TargetError: there is no toolkit.
    """
    from aoe.report.cann import CannReport
    from aoe.runs.cann import find_program, run_cann

    env = environment()
    find_program(soc_version, env, "atc")
    options, as_json = [], asked_documents().printed == "json"
    for name, value in _options(arguments):
        if name not in _NOT_OF_ATC:
            options.append(name if value is None else f"{name}={value}")
        elif name != "--json":
            say(f"warning: {name} is of this engine and is not handed to CANN's atc")
    run = run_cann(
        [options],
        soc_version,
        env=env,
        cwd=Path.cwd(),
        output=sys.stderr if as_json else None,
        program="atc",
    )
    return finish(CannReport(run=run), as_json=as_json)


def _handed_over(arguments: Sequence[str]) -> tuple[list[str], list[JobType]]:
    """Return the options for CANN without the mode, and the modes, one call each."""
    options, jobs = [], [JobType.OPAT]
    for name, value in _options(arguments):
        if name == _JOB:
            jobs = _jobs(value or "")
        elif name in _SHARED or name in OPTIONS:
            options.append(name if value is None else f"{name}={value}")
        elif name not in ("--json", _SOC):
            say(f"warning: {name} is of this engine and is not handed to CANN's aoe")
    return options, jobs


def _jobs(text: str) -> list[JobType]:
    known = {
        **{str(job.number): job for job in (JobType.SGAT, JobType.OPAT)},
        **{str(job): job for job in (JobType.SGAT, JobType.OPAT)},
    }
    parts = [part.strip().lower() for part in text.split(",")]
    unknown = [part for part in parts if part not in known]
    if unknown:
        raise OptionError(
            _JOB,
            "no job of CANN's aoe",
            got=unknown[0],
            expected="1 (or sgat), 2 (or opat)",
            hint="gradients are tuned by AOE_MODE=4 in a training script on CANN",
        )
    return [known[part] for part in parts]


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each option with its value; a word that belongs to none is one without a value."""
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, has_value, value = word.partition("=")
        name = _SHORT.get(name, name)
        found = OPTIONS.get(name)
        is_flag = name in _OWN_FLAGS or (found is not None and found.is_flag)
        if not has_value and not is_flag and left and not left[0].startswith("-"):
            yield name, left.pop(0)
        else:
            yield name, value if has_value else None
