"""The commands of `aoe`: a row names the function behind one, and what the help says of it.

Options of a command are the parameters of its function: one of a name in `OPTIONS` is that option,
any other has its help beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aoe.cli.command_options import COMMAND_OPTIONS, OPTIONS
from aoe.runs.configuration.option import Option
from aoebank import DOCUMENTS

_OF_RESULTS, _BEFORE = "Commands that use results", "Before tuning"
_OF_PROFILES = (
    *("framework", "weight", "one_shape", "custom_ops_library", "require_signature"),
    *("input_files", "input_sets", "aicore_num"),
)
_OF_PROGRAM = ("--install-completion", "--show-completion", "--help")
_OF_PRECISION = ("precision_mode", "modify_mixlist", "accuracy", "calibration", "strict_fp32")

JUDGING = (
    *("shapes_from", "input_files", "input_sets", "out_nodes", "custom_ops_library"),
    *(*_OF_PRECISION, "kernel_memory", "config", "output"),
)
"""Options of `aoe verify` that say how a whole model is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command by the function behind it."""

    summary: str
    """What it is for; the first line of its help."""
    function: str
    """`module:name` below `aoe.cli`. It returns a report, or the exit code once it has written."""
    options: tuple[str | Option, ...] = ()
    """Options that its parameter `options` has the values of: names, or rows with other words."""
    section: str = _OF_RESULTS
    """Heading in the list of commands."""
    examples: tuple[str, ...]
    help: str = ""
    """First line of its help, where that is another one."""
    details: str = ""
    """A further paragraph of it."""
    has_output: bool = False
    """True if `--output` names its result, which takes the place of `-o FILE`."""
    writes_bank: bool = False
    """True if it tunes or measures into a bank, as tuning itself does."""

    @property
    def documents(self) -> tuple[str, ...]:
        """Options that ask for documents."""
        return tuple(one for one in DOCUMENTS if not (self.has_output and one == "document_file"))


COMMANDS: Mapping[str, Command] = {
    "doctor": Command(
        summary="Show every setting and where it comes from; check machine, tools and places.",
        function="doctor:doctor",
        section=_BEFORE,
        examples=("aoe doctor", "aoe doctor --config sgat_config.json --json"),
    ),
    "demo": Command(
        summary="Tune AlexNet for this CPU and show the bank that comes of it (under two minutes).",
        function="demo:demo",
        has_output=True,
        examples=("aoe demo",),
        writes_bank=True,
    ),
    "watch": Command(
        summary="Show runs while they work: operators, trials, best so far, what is left.",
        details="On a terminal until the run ends, else as it is now. The exit code is 0 while a "
        "run goes on\nand if it ends well, 1 if it fails or was killed, or if no run goes on.",
        function="watch:watch",
        examples=(
            "aoe watch out          # the run that writes there, or did last",
            "aoe watch --all",
            "aoe watch out --json",
        ),
    ),
    "compile": Command(
        summary="Convert a model with what a bank has for it; nothing is tried or measured.",
        function="compile:compile_model",
        has_output=True,
        options=(
            *("framework", "weight", "input_shape", "shapes_from", "dynamic_batch_size"),
            *("dynamic_image_size", "dynamic_dims", "out_nodes", "custom_ops_library"),
            *("input_files", "input_sets", "soc_version", "aicore_num", *_OF_PRECISION),
        ),
        examples=(
            "aoe compile --model=net.onnx --framework=5 --op_bank_path=bank --output=net",
            "aoe compile --model=net.onnx --op_compiler_cache_dir=out --output=net",
        ),
    ),
    "verify": Command(
        summary="Measure records of a bank again on this machine: do they still hold?",
        function="verify:verify_bank",
        has_output=True,
        options=JUDGING,
        examples=(
            "aoe verify --sample 10",
            "aoe verify bank --stale-only --json",
            "aoe verify bank --model=net.onnx",
            "aoe verify bank --model=net.onnx --undecided",
            "aoe verify bank --script train.py    # gradients, in their training",
        ),
        writes_bank=True,
    ),
    "plan": Command(
        summary="Show what tuning a model would reuse, tune again, tune anew and drop.",
        function="plan:plan",
        options=(
            "base_result",
            replace(
                OPTIONS["job_type"],
                help="1 (or sgat) = subgraphs, 2 (or opat) = operators, or both: sgat,opat; "
                "4 (or gdat) = gradients of a training.",
            ),
            *("framework", "weight"),
            replace(
                OPTIONS["input_shape"],
                help='Shapes of inputs the model leaves open: "name:1,3,224,224;other:1,16"; with '
                "LEAST~LARGEST for a range.",
            ),
            *("shapes_from", "custom_ops_library", "soc_version"),
            replace(OPTIONS["aicore_num"], unset="all usable ones"),
            "trials",
            replace(
                OPTIONS["script"],
                help="Training script whose gradients are planned; all that follows is passed to "
                "it.",
            ),
            *("script_argument", "loss_name", "world"),
        ),
        section=_BEFORE,
        examples=(
            "aoe plan net.onnx --base_result=out          # what has changed since?",
            "aoe plan net.onnx --job_type=sgat,opat --json",
            "aoe plan --job_type=4 --script train.py      # gradients of a DDP script",
        ),
    ),
    "run": Command(
        summary="Run a tuned model once and say what came out.",
        help="Run a tuned model once and say what came out: this runs the native code in it.",
        function="run:run",
        has_output=True,
        examples=(
            "aoe run out/net_tune.om --input random",
            "aoe run out/net_tune.om --input x:x.npy",
        ),
    ),
    "benchmark": Command(
        summary="Time a model against another one, interleaved, with a confidence interval.",
        function="benchmark:benchmark",
        examples=(
            "aoe benchmark out/net_tune.om",
            "aoe benchmark out/net_tune.om --vs net.onnx --threads 1",
        ),
    ),
    "profile": Command(
        summary="Show where the time of a model goes, operator by operator, and how much is lost.",
        function="profile:profile",
        options=_OF_PROFILES,
        examples=(
            "aoe profile net.onnx --html net.html",
            "aoe profile out/net_tune.om --json after.json",
            "aoe profile --compare before.json after.json --html both.html",
        ),
    ),
    "advise": Command(
        summary="Say what loses time in a model, why, and which actions help: each is tried first.",
        function="advise:advise",
        options=(*_OF_PROFILES, "precision_mode"),
        examples=(
            "aoe advise net.onnx",
            "aoe advise net.onnx --tune_ops_file ops.json --json",
        ),
    ),
    "sign": Command(
        summary="Sign a tuned model with an SSH key, so that others can tell who made it.",
        help="Sign a tuned model with an SSH key; --require_signature checks it before anything is "
        "run.",
        function="sign:sign",
        has_output=True,
        examples=("aoe sign out/net_tune.om --key ~/.ssh/id_ed25519",),
    ),
    "inspect": Command(
        summary="Show what is in a tuned model, or the timeline before and after gradient tuning.",
        details="The page shows the graph, or the timeline, before and after tuning. Nothing in a "
        "tuned model is\nrun, unless --times asks for it.",
        function="inspect:inspect",
        examples=(
            "aoe inspect out/net_tune.om",
            "aoe inspect aoe_result_gdat_20260301120000000_pid7.json --html timeline.html",
        ),
    ),
}
_BEFORE_VALUES = frozenset(
    flag
    for row in COMMAND_OPTIONS.values()
    if row.kind is not bool and row.name not in DOCUMENTS
    for flag in row.flags
)
"""Flags of the command `aoe` behind which a word is their value."""


def command_place(arguments: Sequence[str]) -> int:
    """Return the place of the command among arguments of `aoe`; their number if there is none.

    >>> command_place(["--quiet", "run", "x.om"]), command_place(["--output", "run"])
    (1, 2)
    """
    for place, word in enumerate(arguments):
        if word in COMMANDS and not (place and arguments[place - 1] in _BEFORE_VALUES):
            return place
    return len(arguments)


SECTIONS: Mapping[str, Sequence[str]] = {
    section: [name for name, row in COMMANDS.items() if row.section == section]
    for section in (_OF_RESULTS, _BEFORE)
}
OPTION_SECTIONS: Mapping[str, Sequence[str]] = {
    heading: (
        *(one.option for one in COMMAND_OPTIONS.values() if one.group == heading),
        *(_OF_PROGRAM if heading == "About" else []),
    )
    for heading in dict.fromkeys(one.group for one in COMMAND_OPTIONS.values() if one.group)
}
EXAMPLES: Mapping[str, Sequence[str]] = {
    "": (
        "aoe --model=net.onnx --job_type=2 --output=out    # makes out/net_tune.om",
        "aoe --model=net.onnx --job_type=sgat,opat --tuning_time_limit=600",
        "aoe --job_type=2 --script train.py        # both passes of a training script",
        "aoe --job_type=2,4 --script train.py      # these, and the gradients of DDP",
    ),
    **{name: row.examples for name, row in COMMANDS.items()},
}
NOTES: Mapping[str, Sequence[str]] = {
    "Where things are": (
        "bank     $TUNE_BANK_PATH, else $ASCEND_CACHE_PATH/aoe_data, else",
        "         ~/Ascend/latest/data/aoe/custom/op; in it <soc_version>/unified_bank;",
        "         subgraphs in ~/Ascend/latest/data/aoe/custom/graph/<soc_version>",
        "results  --output, else ./aoe_workspace/<model>_<timestamp>/tunespace/result",
        "report   aoe_result_<mode>_<timestamp>_pid<N>.json in",
        "         $ASCEND_WORK_PATH/aoe_data, else in --output, else here",
    ),
    "Environment": (
        "TUNE_BANK_PATH, ASCEND_CACHE_PATH, ASCEND_WORK_PATH   see above",
        "REPEAT_TUNE=True        tune again what the bank has; better replaces it",
        "AOE_ACCEPT_BUSY=True    believe figures of a busy machine",
        "ASCEND_DEVICE_ID=N      pin the run to a NUMA node, as --device",
        "TE_PARALLEL_COMPILER=N  processes that compile, 1 to 32",
        "CC, TMPDIR, AOE_CACHE_SIZE, NO_COLOR   see docs/environment.md",
    ),
    "Exit codes": (
        "0 done   1 the answer is no   2 usage   3 an error   4 a bug",
        "130, 143, 129 interrupted: what was found is in the bank",
    ),
}
