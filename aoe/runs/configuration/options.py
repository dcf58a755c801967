"""The options of a tuning: one table, and everything that takes options is made from it.

A row is a member of `TuneOptions`: its name, its type for `aoe.tune`, and an `Option` with the
rest: flags and help of the command line, key in a configuration file, environment variable,
default, the other name it has in `TuneSettings` and `aoe.torch.optimize`. The command `aoe`,
`aoe.tune`, the files (`files.py`), the variables, `aoe doctor` and the table in
`docs/environment.md` take every row they can. A command of `aoe` takes a row by its name
(`aoe/cli/commands.py`), `aoe.torch.optimize` those in `_TUNING`. `settings_of` (`resolving.py`)
puts values into the members of `TuneSettings`, so a new option is one row, its member, and the
code that reads the value.
"""

# no `from __future__ import annotations`: the rows are read at run time, so types that are
# expensive to import are texts
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypedDict, TypeVar, get_args

from aoe.errors import OptionError
from aoe.runs.configuration.option import Group, Option
from aoe.runs.configuration.parsing import (
    cache_mode,
    compression,
    jobs,
    metric,
    operator_choice,
    operators,
    optimization_level,
    out_nodes,
    path,
    search_name,
    size,
    stages,
    study,
    switch,
    whole,
    words,
    worker_pool,
)
from aoe.settings import LARGEST_SEED, parse_seconds
from aoe.tuner.mode import JobType, OptimizationLevel, TargetMetric
from aoebank import Completes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from aoe.om.loading import OperatorFiles

    InputArrays = Mapping[str, ArrayLike]
    GivenShapes = str | Mapping[str, Sequence[int]] | Sequence[str | Mapping[str, Sequence[int]]]
    GivenInputs = str | os.PathLike[str] | InputArrays | Sequence[InputArrays]

P = ParamSpec("P")
R = TypeVar("R")
File = str | os.PathLike[str]
_MOST_PROCESSES, _MOST_PARALLEL, _MOST_LOOPS = 32, 64, 2048
"""Source: AOE documentation, TE_PARALLEL_COMPILER, and TUNING_PARALLEL_NUM, RUN_LOOP of aoe.ini."""
DEVICE_VARIABLE = "ASCEND_DEVICE_ID"


_model = partial(Option, group=Group.MODEL)
_what = partial(Option, group=Group.WHAT)
_search = partial(Option, group=Group.SEARCH)
_precision = partial(Option, group=Group.PRECISION)
_results = partial(Option, group=Group.RESULTS)


class TuneOptions(TypedDict, total=False):
    """Options of `aoe.tune`, those of the command `aoe` among them.

    None, where a type allows it, stands for what a configuration file, a variable or the default
    says.
    """

    framework: Annotated[
        int | None,
        _model(
            flags=("--framework", "-f"),
            metavar="N",
            default=5,
            help="Kind of the model: 0 = Caffe, 3 = TensorFlow, 5 = ONNX.",
            doc="AOE's framework number of a file, 5 is ONNX; None for a directory or a tuned "
            "model (`.om`, tuned again), which say themselves what they are.",
        ),
    ]
    weight: Annotated[
        File | None,
        _model(
            parse=path,
            flags=("--weight", "-w"),
            metavar="FILE",
            help="Weights of a Caffe model (caffemodel).",
        ),
    ]
    input_shape: Annotated[
        "GivenShapes | None",
        _model(
            kind=list[str],
            metavar="SHAPES",
            help='Shapes of inputs the model leaves open: "name:1,3,224,224;other:1,16"; several '
            "times for a tuned model that holds several shapes; with LEAST~LARGEST for a range.",
            doc="Shapes of inputs the model leaves open: by name, or as the command takes them, "
            '`"images:1,3,224,224;mask:1,128"`. A sequence of these tunes an ONNX model for each, '
            "and the tuned model holds all of them. With `1~8` in place of an extent, the model is "
            "tuned for all shapes of that range at once.",
        ),
    ]
    out_nodes: Annotated[
        str | None,
        _model(
            parse=out_nodes,
            metavar="NODE:N;...",
            help='Cut the model off behind these results of nodes: "conv1:0;relu2:0".',
        ),
    ]
    custom_ops_library: Annotated[
        "OperatorFiles",
        _model(
            parse=operators,
            member="operators",
            kind=list[Path],
            metavar="FILE.so",
            help="Library of operators ONNX Runtime does not have; several times for several.",
            doc="The library, or libraries, with operators ONNX Runtime does not have.",
        ),
    ]
    shapes_from: Annotated[
        File | None,
        _model(
            metavar="FILE",
            help='Log of the shapes a model was run with, a line each: "COUNT,name:1,3,224,224"; '
            "the most frequent are taken.",
        ),
    ]
    inputs: Annotated[
        "GivenInputs | None",
        Option(
            doc="Values the model is run on while it is validated: arrays by input name, a "
            "sequence of such sets, or a directory of them as `--inputs` takes it; None for "
            "made-up values."
        ),
    ]
    soc_version: Annotated[
        str | None,
        _model(
            metavar="NAME",
            help="Name of the target.",
            completes=Completes.SOC_VERSION,
            unset="this CPU",
            parse=words,
            meaning="target",
            stands_for="this machine",
        ),
    ]
    aicore_num: Annotated[
        int | None,
        _model(
            alias="core_num",
            metavar="N",
            least=1,
            help="Cores, a thread each.",
            unset="what an .om was tuned for, else all usable ones",
            parse=whole(1),
            meaning="cores to tune for",
            stands_for="all usable ones",
        ),
    ]
    device: Annotated[
        int | None,
        _model(
            kind=str,  # the parser names what is wrong
            alias="device_id",
            metavar="N",
            help="NUMA node to pin the run to; 0 is this CPU where there is one node.",
            parse=whole(0),
            meaning="NUMA node the run is pinned to; 0 is this CPU where there is one node",
            variable=DEVICE_VARIABLE,
            stands_for="the whole machine",
        ),
    ]
    job_type: Annotated[
        int | str | None,
        _what(
            flags=("--job_type", "-j"),
            metavar="MODE",
            help="1 (or sgat) = subgraph, 2 (or opat) = operator, 4 (or gdat) = gradient tuning; "
            "a comma list runs them in order.",
            parse=jobs,
            meaning="what is tuned",
            completes=("opat", "sgat", "sgat,opat", "gdat"),
            key="job_type",
            default="2",
            value=(JobType.OPAT,),
            stands_for="2 (opat)",
        ),
    ]
    stage: Annotated[
        str | Sequence[str] | None,
        _what(
            alias="stages",
            kind=list[str],
            metavar="MODE:SECONDS",
            help="A mode and its own time limit, as in sgat:28800; given once for each mode, in "
            "order, in the place of --job_type and --tuning_time_limit.",
            doc='Modes with a time limit for each, `["sgat:28800", "opat:3600"]`, in the place of '
            "`job_type` and `tuning_time_limit`.",
            parse=stages,
            meaning="modes in order, each with its own seconds, instead of job_type and a limit",
            key="stages",
            default=(),
            stands_for="those of job_type",
        ),
    ]
    nonhomo_split: Annotated[
        bool,
        _what(
            flags=("--Fnonhomo_split",),
            default=False,
            help="Subgraph tuning may cut batches into uneven pieces, 7 as 4+3.",
        ),
    ]
    tune_optimization_level: Annotated[
        str,
        _what(
            parse=optimization_level,
            kind=OptimizationLevel,
            default=OptimizationLevel.O2,
            help="How far subgraph tuning goes: O2 tries the rewrite rules that have won before, "
            "O1 every rule, without AOE's limits on fusions.",
        ),
    ]
    allow_compression: Annotated[
        str | None,
        _what(
            parse=compression,
            metavar="bf16|fp16",
            help="Gradient tuning may sum gradients in 16 bits: results differ in rounding.",
        ),
    ]
    tuning_time_limit: Annotated[
        float | None,
        _search(
            alias="tuning_time_limit_s",
            metavar="SECONDS",
            least=0,
            help="Seconds for searching and for comparing the whole model.",
            unset="no limit",
            parse=parse_seconds,
            meaning="seconds for searching and judging",
            key="tuning_time_limit",
            stands_for="no limit",
        ),
    ]
    max_tuning_count: Annotated[
        int | None,
        Option(
            parse=whole(1),
            meaning="most candidates over the whole run",
            key="max_tuning_count",
            stands_for="no limit",
        ),
    ]
    trials: Annotated[
        int | None,
        _search(
            metavar="N",
            least=1,
            help="Most candidates tried for one operator.",
            parse=whole(1),
            meaning="most candidates for one operator",
            default=24,
        ),
    ]
    kernel_memory: Annotated[
        int | None,
        _search(
            alias="kernel_memory_mib",
            flags=("--memory",),
            metavar="MIB",
            least=0,
            help="Most MiB of transformed weights that kernels may keep.",
            unset="what keeps a session within 1.1 times the untuned peak, or 10 MiB above it "
            "where that is more",
            parse=whole(0),
            meaning="most MiB that kernels of a model may keep of transformed weights",
            key="kernel_memory",
            stands_for="1.1 times the untuned model's peak memory, or 10 MiB more if that is more",
        ),
    ]
    search: Annotated[
        str | None,
        _search(
            metavar="METHOD",
            help="How candidates are chosen: bayesian, genetic, random or exhaustive.",
            parse=search_name,
            completes=("bayesian", "exhaustive", "genetic", "random"),
            meaning="how candidates are chosen",
            key="search_algorithm",
            default="bayesian",
        ),
    ]
    target_metric: Annotated[
        str | None,
        Option(
            doc="latency, of one run with every core, or throughput, the runs of a second with "
            "one stream of one thread on each core.",
            parse=metric,
            meaning="what is made better: one run, or all runs of a second, a stream on each core",
            key="target_metric",
            default=TargetMetric.LATENCY,
        ),
    ]
    seed: Annotated[
        int | None,
        _search(
            metavar="N",
            least=0,
            most=LARGEST_SEED,
            help="Seed of all that is random: made-up inputs, samples, the search.",
            parse=whole(0, LARGEST_SEED),
            meaning="of random inputs and of the search",
            default=0,
        ),
    ]
    base_result: Annotated[
        File | None,
        _search(
            parse=path,
            metavar="DIR|X.om|BANK",
            help="An earlier --output, tuned model or bank: only what changed since is tuned.",
            doc="Earlier `output`, tuned model or root of a bank: what it knows of this model is "
            "taken over, and only what changed since is tuned.",
        ),
    ]
    tune_ops_file: Annotated[
        File | None,
        _search(
            parse=operator_choice,
            member="tune_ops",
            metavar="FILE",
            help="JSON file of the operators to tune, by name or type, as for AOE; the others "
            "have what the bank has.",
        ),
    ]
    lookup_only: Annotated[
        bool,
        _search(
            default=False,
            help="Take what the bank has; nothing is tried, measured or remembered.",
        ),
    ]
    workers: Annotated[
        int | str | None,
        _search(
            metavar="N|tcp://HOST:PORT",
            help="Tune on N processes here, or on the workers of a Dask scheduler.",
            parse=worker_pool,
            meaning="processes here, or a Dask scheduler, on whose workers operators are tuned",
            stands_for="this process alone",
        ),
    ]
    config: Annotated[
        File | None,
        _search(
            metavar="FILE",
            help="Settings of a run: sgat_config.json, or an aoe.ini.",
            doc="File of settings, `sgat_config.json` or an `aoe.ini`; arguments count more.",
        ),
    ]
    compile_processes: Annotated[
        int | None,
        Option(
            parse=whole(1, _MOST_PROCESSES),
            meaning="processes that compile candidates",
            variable="TE_PARALLEL_COMPILER",
            stands_for="one a core, at most 8",
        ),
    ]
    tuning_parallel_num: Annotated[
        int | None,
        Option(
            alias="batch",
            parse=whole(1, _MOST_PARALLEL),
            meaning="candidates proposed and compiled at once; they are measured one after another",
            ini_key="TUNING_PARALLEL_NUM",
            default=4,
        ),
    ]
    run_loop: Annotated[
        int | None,
        Option(
            parse=whole(1, _MOST_LOOPS),
            meaning="least runs of the whole model, or of backward, that figures stand on",
            ini_key="RUN_LOOP",
            stands_for="20 pairs of a model, 8 backward passes",
        ),
    ]
    repeat_tune: Annotated[
        bool | None,
        Option(
            parse=switch,
            meaning="whether what the bank has already is tuned again",
            variable="REPEAT_TUNE",
            default=False,
        ),
    ]
    accept_busy: Annotated[
        bool | None,
        Option(
            parse=switch,
            meaning="whether figures of a busy machine are believed",
            variable="AOE_ACCEPT_BUSY",
            default=False,
        ),
    ]
    bank: Annotated[
        File | None,
        Option(
            doc="Root of the bank, made if it is missing.",
            parse=words,
            meaning="root of the custom bank",
            variable="TUNE_BANK_PATH",
            stands_for="`$ASCEND_CACHE_PATH/aoe_data`, else below `$HOME`",
        ),
    ]
    op_compiler_cache_mode: Annotated[
        str,
        Option(
            parse=cache_mode,
            alias="cache_mode",
            default="enable",
            doc="What becomes of compiled kernels: enable, disable or force.",
        ),
    ]
    op_compiler_cache_dir: Annotated[
        File | None,
        Option(
            parse=path,
            alias="cache_dir",
            doc="Where compiled kernels are kept; None for the cache of the user.",
        ),
    ]
    precision_mode: Annotated[
        str | None,
        _precision(
            metavar="MODE",
            help="must_keep_origin_dtype (default), force_fp32, allow_fp32_to_bf16, "
            "allow_mix_precision_bf16, allow_mix_precision_int8 or allow_mix_precision_int4.",
            completes=(
                *("must_keep_origin_dtype", "force_fp32", "allow_fp32_to_bf16"),
                *("allow_mix_precision_bf16", "allow_mix_precision_int8"),
                "allow_mix_precision_int4",
            ),
        ),
    ]
    modify_mixlist: Annotated[
        File | None,
        _precision(
            metavar="FILE",
            help="JSON file of the operators that are kept in float32 and of those that are not, "
            "in CANN's form.",
        ),
    ]
    accuracy: Annotated[
        str | None,
        _precision(
            metavar="CONSTRAINT",
            help="What the model must keep: 'cosine>=0.999' (default below float32), "
            "'max_relative<=0.01' or 'FILE.py:FUNCTION>=VALUE'.",
        ),
    ]
    calibration: Annotated[
        "GivenInputs | None",
        _precision(
            kind=Path,
            metavar="DIR",
            help="Directory of input sets accuracy is checked on.",
            unset="--inputs",
            doc="Values accuracy is checked on, like `inputs`; None for those.",
        ),
    ]
    strict_fp32: Annotated[
        bool,
        _precision(
            flags=("--strict_fp32", "--deterministic"),
            default=False,
            help="No kernels that transform sums, such as Winograd.",
        ),
    ]
    output: Annotated[
        File | None,
        _results(
            parse=path,
            metavar="DIR|FILE.om",
            help="Where the tuned model, the reports and the records it uses go.",
        ),
    ]
    study: Annotated[
        str | None,
        _results(
            parse=study,
            metavar="FILE",
            help="Write each search as a study of Optuna, too, for optuna-dashboard: FILE.log (a "
            "journal, fast) or FILE.db (SQLite).",
        ),
    ]
    anonymous: Annotated[
        bool,
        _results(
            default=False,
            help="Leave the name of the model out of records of subgraphs.",
        ),
    ]


_VARIABLES = (
    Option(
        name="work_path",
        parse=words,
        meaning="where results go without --output; below the variable in aoe_data",
        ini_key="WORK_PATH",
        variable="ASCEND_WORK_PATH",
        variable_first=True,
        stands_for="the working directory",
    ),
    Option(
        name="built_in_bank",
        parse=words,
        meaning="root of the bank looked up after the custom one; `off` for none",
        variable="AOE_BUILT_IN_BANK",
        stands_for="the one of the package",
    ),
    Option(
        name="bank_union",
        parse=words,
        meaning="which of several banks in `TUNE_BANK_PATH` answers: `first` with a record that "
        "fits, or the `best` record of all",
        variable="AOE_BANK_UNION",
        stands_for="first",
    ),
    Option(
        name="c_compiler",
        parse=words,
        meaning="links kernels",
        variable="CC",
        stands_for="the first of cc, gcc, clang, ziglang",
    ),
    Option(
        name="cache_size",
        parse=size,
        meaning="most bytes of unpacked `.om` files",
        variable="AOE_CACHE_SIZE",
        stands_for="10G",
    ),
    Option(
        name="scratch",
        parse=words,
        meaning="files of a run while it works",
        variable="TMPDIR",
        stands_for="`/tmp`",
    ),
    Option(
        name="locks",
        parse=words,
        meaning="where runs on a machine take turns at measuring; the same for all of them",
        variable="AOE_LOCK_PATH",
        stands_for="`/tmp/aoe-locks`",
    ),
)
"""Settings that no call and no flag can say."""


def _kind(hint: Any) -> Any:
    """Return the type on the command line of an option of a type; text where there are several."""
    kinds = [one for one in get_args(hint) if one is not NoneType] or [hint]
    if os.PathLike[str] in kinds:
        return Path
    return kinds[0] if kinds[0] in (bool, int, float) and len(kinds) == 1 else str


def _rows(hints: Mapping[str, Any]) -> Iterator[tuple[str, Option]]:
    for name, hint in hints.items():
        row: Option = hint.__metadata__[0]
        yield name, replace(row, kind=row.kind or _kind(hint.__origin__)).named(name)


TUNE_OPTIONS: Mapping[str, Option] = dict(_rows(TuneOptions.__annotations__))
"""Rows of `aoe.tune`, by name of the parameter."""
_ALIASES = {row.alias: row.name for row in TUNE_OPTIONS.values() if row.alias}
SETTINGS: Mapping[str, Option] = {
    row.name: row for row in (*TUNE_OPTIONS.values(), *_VARIABLES) if row.meaning
}
"""Rows that a file or a variable can say, and those that are resolved with them."""


def present_name(name: str) -> str:
    """Return the name of the option that has this one for an alias, else the name itself."""
    return _ALIASES.get(name, name)


def read_option(name: str, value: object) -> Any:
    """Return a value of an option as its row reads it; None stays None.

    Args:
        name: Of the option, or its alias: the place an error names.

    Raises:
        OptionError: it cannot be meant.
    """
    row = TUNE_OPTIONS[present_name(name)]
    return value if value is None or row.parse is None else row.parse(name, value)


def with_former_names(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that takes options under their aliases, too.

    Raises:
        OptionError: one is given under both names.
    """

    @wraps(function)
    def called(*args: P.args, **given: P.kwargs) -> R:
        for old in _ALIASES.keys() & given.keys():
            new = _ALIASES[old]
            if new in given:
                raise OptionError(old, f"given together with {new}", got=given[old])
            given[new] = given.pop(old)
        return function(*args, **given)

    return called


def document_options(function: Callable[..., Any]) -> None:
    """Give a function that takes `**options` their names, types, defaults and meanings.

    `inspect.signature`, `help()` and editors show them; its docstring ends in `Options:`.
    """
    known = signature(function)
    own = [one for one in known.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    hints = TuneOptions.__annotations__
    rows = [
        Parameter(
            row.name,
            Parameter.KEYWORD_ONLY,
            default=None if row.meaning else row.initial,
            annotation=hints[row.name].__origin__,
        )
        for row in TUNE_OPTIONS.values()
    ]
    function.__signature__ = known.replace(parameters=[*own, *rows])  # type: ignore[attr-defined]
    lines = [f"        {row.name}: {row.meaning_of_call}" for row in TUNE_OPTIONS.values()]
    function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n" + "\n".join(lines) + "\n"
