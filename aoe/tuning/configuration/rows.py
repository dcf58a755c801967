"""Every setting of `aoe`, a row each: what it is called in each place, and its default.

`docs/environment.md` has the same table; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoe.errors import OptionError
from aoe.settings import LARGEST_SEED, cache_limit
from aoe.tuning.configuration.parsing import Parser, one_of, seconds, switch, whole, words
from aoe.tuning.mode import JobType, TargetMetric
from aoe.tuning.registry import parse_job_types

_MOST_PROCESSES, _MOST_PARALLEL, _MOST_LOOPS = 32, 64, 2048
"""Source: AOE documentation, TE_PARALLEL_COMPILER, and TUNING_PARALLEL_NUM, RUN_LOOP of aoe.ini."""


DEVICE_VARIABLE = "ASCEND_DEVICE_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting and its names.

    Attributes:
        name: What `aoe doctor` calls it.
        meaning: In a few words.
        parse: Reads its values.
        option: Of the command line, empty if there is none.
        key: Member of the JSON file of `--config`.
        ini_key: Key of `aoe.ini`.
        variable: Of the environment.
        default: Value if nothing is said; None where the program finds one.
        stands_for: The default in words, where its value does not say it.
        variable_first: True where the variable counts before the file, as AOE documents it.
    """

    name: str
    meaning: str
    parse: Parser = words
    option: str = ""
    key: str = ""
    ini_key: str = ""
    variable: str = ""
    default: object = None
    stands_for: str = ""
    variable_first: bool = False

    @property
    def default_text(self) -> str:
        """The default in words."""
        return self.stands_for or str(self.default)


def _jobs(where: str, value: object) -> tuple[JobType, ...]:
    return parse_job_types(words(where, value), where)


def _stages(where: str, value: object) -> tuple[tuple[JobType, float | None], ...]:
    """Return modes and their seconds, in order; `mode` alone is a stage without a limit."""
    texts = value if isinstance(value, list | tuple) else [value]
    stages: list[tuple[JobType, float | None]] = []
    for text in (part.strip() for one in texts for part in words(where, one).split(",")):
        mode, colon, limit = text.partition(":")
        jobs = parse_job_types(mode, where)
        if jobs == (JobType.GDAT,):
            raise OptionError(where, "gradient tuning is no stage: it runs alone", got=repr(text))
        if jobs[0] in (job for job, _ in stages):
            raise OptionError(where, "a mode is there twice", got=repr(text))
        stages.append((jobs[0], seconds(where, limit) if colon else None))
    return tuple(stages)


def _search(where: str, value: object) -> object:
    from aoe.tuning.search.registry import SEARCHES

    return one_of(*SEARCHES)(where, value)


def _size(where: str, value: object) -> str:
    text = words(where, value)
    cache_limit({where: text})
    return text


def _workers(where: str, value: object) -> str:
    from aoe.execute.workers.local import parse_workers

    return str(parse_workers(words(where, value), where))


def _metric(where: str, value: object) -> TargetMetric:
    return TargetMetric(str(one_of(*TargetMetric)(where, value)))


_ROWS = (
    Setting(
        name="job_type",
        meaning="what is tuned",
        option="--job_type",
        key="job_type",
        parse=_jobs,
        default=(JobType.OPAT,),
        stands_for="2 (opat)",
    ),
    Setting(
        name="stage",
        meaning="modes in order, each with its own seconds, instead of job_type and a limit",
        option="--stage",
        key="stages",
        parse=_stages,
        default=(),
        stands_for="those of job_type",
    ),
    Setting(
        name="tuning_time_limit",
        meaning="seconds for searching and judging",
        parse=seconds,
        option="--tuning_time_limit",
        key="tuning_time_limit",
        stands_for="no limit",
    ),
    Setting(
        name="max_tuning_count",
        meaning="most candidates over the whole run",
        parse=whole(1),
        key="max_tuning_count",
        stands_for="no limit",
    ),
    Setting(
        name="kernel_memory",
        meaning="most MiB that kernels of a model may keep of transformed weights",
        parse=whole(0),
        option="--memory",
        key="kernel_memory",
        stands_for="1.1 times the untuned model's peak memory",
    ),
    Setting(
        name="trials",
        meaning="most candidates for one operator",
        parse=whole(1),
        option="--trials",
        default=24,
    ),
    Setting(
        name="search",
        meaning="how candidates are chosen",
        parse=_search,
        option="--search",
        key="search_algorithm",
        default="bayesian",
    ),
    Setting(
        name="target_metric",
        meaning="what is made better: one run, or all runs of a second, a stream on each core",
        parse=_metric,
        key="target_metric",
        default=TargetMetric.LATENCY,
    ),
    Setting(
        name="seed",
        meaning="of random inputs and of the search",
        parse=whole(0, LARGEST_SEED),
        option="--seed",
        default=0,
    ),
    Setting(
        name="soc_version",
        meaning="target",
        option="--soc_version",
        stands_for="this machine",
    ),
    Setting(
        name="aicore_num",
        meaning="cores to tune for",
        parse=whole(1),
        option="--aicore_num",
        stands_for="all usable ones",
    ),
    Setting(
        name="device",
        meaning="NUMA node the run is pinned to; 0 is this CPU where there is one node",
        parse=whole(0),
        option="--device",
        variable=DEVICE_VARIABLE,
        stands_for="the whole machine",
    ),
    Setting(
        name="workers",
        meaning="processes here, or a Dask scheduler, on whose workers operators are tuned",
        parse=_workers,
        option="--workers",
        stands_for="this process alone",
    ),
    Setting(
        name="compile_processes",
        meaning="processes that compile candidates",
        parse=whole(1, _MOST_PROCESSES),
        variable="TE_PARALLEL_COMPILER",
        stands_for="one a core, at most 8",
    ),
    Setting(
        name="tuning_parallel_num",
        meaning="candidates proposed and compiled at once; they are measured one after another",
        parse=whole(1, _MOST_PARALLEL),
        ini_key="TUNING_PARALLEL_NUM",
        default=4,
    ),
    Setting(
        name="run_loop",
        meaning="least runs of the whole model, or of backward, that figures stand on",
        parse=whole(1, _MOST_LOOPS),
        ini_key="RUN_LOOP",
        stands_for="20 pairs of a model, 8 backward passes",
    ),
    Setting(
        name="work_path",
        meaning="where results go without --output; below the variable in aoe_data",
        ini_key="WORK_PATH",
        variable="ASCEND_WORK_PATH",
        variable_first=True,
        stands_for="the working directory",
    ),
    Setting(
        name="repeat_tune",
        meaning="whether what the bank has already is tuned again",
        parse=switch,
        variable="REPEAT_TUNE",
        default=False,
    ),
    Setting(
        name="accept_busy",
        meaning="whether figures of a busy machine are believed",
        parse=switch,
        variable="AOE_ACCEPT_BUSY",
        default=False,
    ),
    Setting(
        name="bank",
        meaning="root of the custom bank",
        variable="TUNE_BANK_PATH",
        stands_for="`$ASCEND_CACHE_PATH/aoe_data`, else below `$HOME`",
    ),
    Setting(
        name="built_in_bank",
        meaning="root of the bank looked up after the custom one; `off` for none",
        variable="AOE_BUILT_IN_BANK",
        stands_for="the one of the package",
    ),
    Setting(
        name="c_compiler",
        meaning="links kernels",
        variable="CC",
        stands_for="the first of cc, gcc, clang, ziglang",
    ),
    Setting(
        name="cache_size",
        meaning="most bytes of unpacked `.om` files",
        parse=_size,
        variable="AOE_CACHE_SIZE",
        stands_for="10G",
    ),
    Setting(
        name="scratch",
        meaning="files of a run while it works",
        variable="TMPDIR",
        stands_for="`/tmp`",
    ),
    Setting(
        name="locks",
        meaning="where runs on a machine take turns at measuring; the same for all of them",
        variable="AOE_LOCK_PATH",
        stands_for="`/tmp/aoe-locks`",
    ),
)
SETTINGS: Mapping[str, Setting] = {row.name: row for row in _ROWS}
