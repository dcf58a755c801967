"""What `aoebank --help` and the help of its commands say beyond options: groups and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SECTIONS: Mapping[str, Sequence[str]] = {
    "Find": ("resolve", "ls", "show", "query", "stats", "report", "hits"),
    "Check": ("validate", "stale", "fmt", "explain", "schema", "quarantine"),
    "Compare": ("diff", "textconv"),
    "Merge and change": ("merge", "merge-driver", "edit", "prune"),
    "Version": ("snapshot", "log", "tag", "blame", "restore", "revert"),
    "Ship": ("pack", "unpack", "convert"),
    "Git": ("git",),
}
EXAMPLES: Mapping[str, Sequence[str]] = {
    "": (
        "aoebank validate banks/                    # is anything wrong?",
        "aoebank diff git:v1.0 git:HEAD             # what changed, record by record?",
        "aoebank merge mine/ theirs/ -o merged/     # of both people, the best of each",
        "aoebank git install                        # let git merge banks by record",
    ),
    "resolve": ("aoebank resolve", "aoebank resolve --soc Ascend910B1"),
    "validate": (
        "aoebank validate banks/",
        "aoebank validate banks/ --baseline git:main",
        "aoebank validate banks/ --fix --dry-run",
    ),
    "stale": ("aoebank stale banks/", "aoebank stale --soc 'x86-64-*' --json"),
    "fmt": ("aoebank fmt banks/", "aoebank fmt banks/ --check --diff"),
    "explain": ("aoebank explain", "aoebank explain AB211"),
    "schema list": ("aoebank schema list",),
    "schema import": ("aoebank schema import git:v9.1.0 --json > cann-9.1.0.json",),
    "ls": ("aoebank ls", "aoebank ls git:v1.0"),
    "show": ("aoebank show 2f1c banks/", "aoebank show 4115235782 banks/"),
    "query": (
        "aoebank query 'SELECT op_type, count(*) FROM records GROUP BY op_type'",
        "aoebank query 'SELECT key, file FROM records WHERE speedup < 1.05' banks/",
        "aoebank query \"SELECT key FROM records_fts WHERE records_fts MATCH 'relu'\"",
    ),
    "stats": ("aoebank stats banks/", "aoebank stats mine/ theirs/ --by bank --by op_type"),
    "report": (
        "aoebank report banks/",
        "aoebank report mine/ theirs/ --html > banks.html",
    ),
    "hits": (
        "aoebank hits ~/ascend/log/debug/plog",
        "aoebank hits result/summary.json --bank banks/",
    ),
    "diff": (
        "aoebank diff old/ new/",
        "aoebank diff git:HEAD~1 . --fail-on-regression 5%",
        "aoebank diff snapshot:v1 . --format html > diff.html",
    ),
    "textconv": ("aoebank textconv Ascend910B1_24_AiCore_matmul.json",),
    "merge": (
        "aoebank merge mine/ theirs/ -o merged/",
        "aoebank merge mine/ theirs/ --base git:main -o mine/ --decisions open.json",
        "aoebank merge --apply open.json",
    ),
    "merge-driver": ("aoebank merge-driver base.json ours.json theirs.json 7 where/it/lies.json",),
    "edit": ("aoebank edit banks/ --op MatMulV3 --set stepM=0 --dry-run",),
    "prune": (
        "aoebank prune banks/ --dry-run",
        "aoebank prune banks/ --unused results/ --dry-run",
    ),
    "snapshot": (
        "aoebank snapshot banks/",
        "aoebank snapshot banks/ -m 'before the driver update'",
    ),
    "log": ("aoebank log banks/", "aoebank log banks/ --op 'MatMul*' -n 5"),
    "tag": ("aoebank tag v1 banks/", "aoebank tag"),
    "restore": ("aoebank restore v1 banks/ --dry-run", "aoebank restore v1 banks/ --op 'MatMul*'"),
    "revert": ("aoebank revert v2 banks/ --dry-run",),
    "blame": ("aoebank blame 2f1c banks/",),
    "pack": (
        "aoebank pack banks/ -o bank-1.0.tar.gz",
        "aoebank pack git:v1.0 -o b.tar.gz --soc 'Ascend910B*' --sign ~/.ssh/id_rsa",
    ),
    "unpack": (
        "aoebank unpack bank-1.0.tar.gz banks/",
        "aoebank unpack bank-1.0.tar.gz --check --allowed-signers signers",
    ),
    "convert": (
        "aoebank convert banks/ -o bank.db",
        "aoebank convert git:v1.0 -o v1.jsonl",
        "aoebank convert v1.jsonl -o banks/",
    ),
    "git install": ("aoebank git install", "aoebank git install --global"),
    "git uninstall": ("aoebank git uninstall",),
    "git check": ("aoebank git check",),
    "git verify-merge": ("aoebank git verify-merge HEAD", "aoebank git verify-merge main..HEAD"),
    "quarantine add": ("aoebank quarantine add 2f1c --reason 'aicore error' --until 2027-01-31",),
    "quarantine list": ("aoebank quarantine list",),
    "quarantine rm": ("aoebank quarantine rm 2f1c",),
}
NOTES: Mapping[str, Sequence[str]] = {
    "Where banks are": (
        "$TUNE_BANK_PATH, else $ASCEND_CACHE_PATH/aoe_data, else",
        "~/Ascend/latest/data/aoe/custom/op; `aoebank resolve` tells who reads what",
    ),
    "Exit codes": (
        "0 done, equal, valid   1 differences, findings, misses   2 usage",
        "3 an error with its way out   4 a bug   130, 143, 129 interrupted",
    ),
}
