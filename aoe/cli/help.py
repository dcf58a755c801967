"""What `aoe --help` and the help of its commands say beyond options: groups, examples, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoe.cli.command_options import COMMAND_OPTIONS

SECTIONS: Mapping[str, Sequence[str]] = {
    "Commands that use results": (
        "demo",
        "compile",
        "verify",
        "run",
        "benchmark",
        "profile",
        "advise",
        "sign",
        "inspect",
    ),
    "Before tuning": ("doctor", "plan"),
}
OPTION_SECTIONS: Mapping[str, Sequence[str]] = {
    heading: (
        *(one.option for one in COMMAND_OPTIONS.values() if one.group == heading),
        *(["--help"] if heading == "About" else []),
    )
    for heading in dict.fromkeys(one.group for one in COMMAND_OPTIONS.values() if one.group)
}
EXAMPLES: Mapping[str, Sequence[str]] = {
    "": (
        "aoe --model=net.onnx --job_type=2 --output=out    # makes out/net_tune.om",
        "aoe --model=net.onnx --job_type=sgat,opat --tuning_time_limit=600",
        "aoe --job_type=4 --script train.py                # gradients of a DDP script",
    ),
    "doctor": ("aoe doctor", "aoe doctor --config sgat_config.json --json"),
    "demo": ("aoe demo",),
    "compile": (
        "aoe compile --model=net.onnx --framework=5 --op_bank_path=bank --output=net",
        "aoe compile --model=net.onnx --op_compiler_cache_dir=out --output=net",
    ),
    "verify": (
        "aoe verify --sample 10",
        "aoe verify bank --stale-only --json",
        "aoe verify bank --model=net.onnx",
        "aoe verify bank --model=net.onnx --undecided",
        "aoe verify bank --script train.py    # gradients, in their training",
    ),
    "plan": (
        "aoe plan net.onnx --base_result=out          # what has changed since?",
        "aoe plan net.onnx --job_type=sgat,opat --json",
        "aoe plan --job_type=4 --script train.py      # gradients of a DDP script",
    ),
    "run": ("aoe run out/net_tune.om --input random", "aoe run out/net_tune.om --input x:x.npy"),
    "benchmark": (
        "aoe benchmark out/net_tune.om",
        "aoe benchmark out/net_tune.om --vs net.onnx --threads 1",
    ),
    "profile": (
        "aoe profile net.onnx --html net.html",
        "aoe profile out/net_tune.om --json > after.json",
        "aoe profile --compare before.json after.json --html both.html",
    ),
    "advise": (
        "aoe advise net.onnx",
        "aoe advise net.onnx --tune_ops_file ops.json --json",
    ),
    "sign": ("aoe sign out/net_tune.om --key ~/.ssh/id_ed25519",),
    "inspect": (
        "aoe inspect out/net_tune.om",
        "aoe inspect aoe_result_gdat_20260301120000000_pid7.json --html timeline.html",
    ),
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
