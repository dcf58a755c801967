"""The commands: a row names the public function behind one, and how its result is shown.

Groups, sections, examples and notes of the help stand here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aoebank.model.codes import FixClass, Severity
from aoebank.parameters.param import Param


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A command by the function behind it. Places are `module:name` below `aoebank`."""

    summary: str  # First line of its help
    details: str = ""  # A further paragraph of it
    function: str  # Place of the public function, whose parameters the options are
    calls: str = ""  # Place of a function called instead of it, with the same parameters
    # Place of the class that shows the result; empty where `show` makes the report.
    report: str = ""
    member: str = "result"  # Member of the report that has the result
    # Further members, with the option each has the value of.
    options: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)  # Further members with one value
    if_json: str = ""  # Parameter of the function that is true for `--json`; empty for none
    # Place of a function that calls and shows where a row cannot say how: it is given the call of
    # the public function, which takes other values by name, and the options, and returns the
    # report, or the exit code once it has written.
    show: str = ""
    # Places of what writes the report in formats that have a page of its own, by format.
    pages: Mapping[str, str] = field(default_factory=dict)
    # Help of `--format`, which takes the formats; empty: there is no such option.
    format_help: str = ""
    # Member of the report that is the root of the bank, told if nobody named it; empty: nothing is
    # told.
    bank: str = ""
    extra: Mapping[str, Param] = field(default_factory=dict)  # Options of the command alone
    # Options that come first in the help; the others follow as the function has them.
    order: Sequence[str] = ()


GROUPS: Mapping[str, str] = {
    "schema": "What releases of the toolkit read from runtime banks.",
    "git": "Let git merge and show banks record by record, and check merges it made.",
    "quarantine": "Keep known-bad records out of a bank, whoever brings them back.",
}
OWN_OUTPUT = frozenset({"merge", "pack", "unpack", "convert"})
"""Commands whose `-o` names their result, and no document."""
_DRY = {"is_dry_run": "dry_run"}
VERBS: Mapping[str, Verb] = {
    "resolve": Verb(
        summary="Print which bank directories and files each reader would use.",
        function="resolving.api:resolve",
        show="resolving.report:show",
        extra={"explain": Param(help="Tell every place tried, and why.")},
    ),
    "validate": Verb(
        summary="Check bank files and trees; tell everything that is wrong in one run.",
        function="validation.api:validate",
        show="validation.report:show",
        format_help="How to write the findings.",
        pages={
            "sarif": "validation.exchange:sarif_page",
            "junit": "validation.exchange:junit_page",
            "github": "validation.exchange:github_page",
        },
        extra={
            "fail_on": Param(
                kind=Severity,
                default=Severity.ERROR,
                help="Exit with 1 for findings this bad or worse.",
            ),
            "strict": Param(help="Exit with 1 for any finding: --fail-on note."),
            "fix": Param(
                help="Mend what is broken for a reader, and show the difference; "
                "--fix=order,text: only these classes."
            ),
            "fix_class": Param(
                kind=list[FixClass],
                help="As --fix=CLASS; by default bom, crlf and blank, and what --select names.",
            ),
            "dry_run": Param(help="With --fix: show the difference, write nothing."),
            "statistics": Param(help="Count findings by code, do not list them."),
            "notes": Param(help="List notes too; else they are only counted."),
            "has_each": Param(
                flags=("--each",), help="List each finding; else equal ones are listed once."
            ),
        },
        order=("paths", "output", "fail_on", "strict"),
    ),
    "stale": Verb(
        summary="List records measured in another environment than this one, with the reasons.",
        function="validation.api:stale",
        report="validation.stale:StaleReport",
    ),
    "fmt": Verb(
        summary="Write bank files as their tuner would: records by key, no needless bytes.",
        function="validation.api:fmt",
        report="validation.fix:FormatReport",
        member="outcomes",
        options={"is_check": "check", "has_diff": "diff"},
        extra={"diff": Param(help="Show the difference, line by line.")},
    ),
    "explain": Verb(
        summary="Tell what finding codes mean, why they matter and what to do; "
        "without CODE, list them.",
        function="validation.api:explain",
        report="validation.explain:ExplainReport",
        member="explanations",
        options={"codes": "codes"},
    ),
    "schema list": Verb(
        summary="List the releases that `validate --reader` knows by name.",
        function="validation.api:schema_list",
        report="validation.schema:ReleasesReport",
        member="releases",
    ),
    "schema import": Verb(
        summary="Read the tiling headers of a revision; the document is what `validate --reader` "
        "takes.",
        function="validation.api:schema_import",
        report="validation.schema:ReleaseReport",
        member="release",
    ),
    "ls": Verb(
        summary="List the files of a bank; without PATH, of the one you are in, else the "
        "environment's.",
        function="reading.api:list_bank",
        report="reading.ls:ListReport",
    ),
    "show": Verb(
        summary="Print records with their workload, strategy, time and provenance.",
        function="reading.api:show",
        report="reading.show:ShowReport",
    ),
    "query": Verb(
        summary="Query banks in SQL; without SQL, list the tables.",
        function="reading.api:query",
        report="reading.query:QueryReport",
    ),
    "report": Verb(
        summary="Tell what banks hold as a whole: coverage, gains, age, staleness, outliers.",
        function="reading.api:overview",
        report="reading.overview:OverviewReport",
        pages={"html": "reading.overview_page:overview_page"},
    ),
    "stats": Verb(
        summary="Count records and their times, by operator and target or by what you like.",
        function="reading.api:stats",
        report="reading.query:QueryReport",
        constants={"schema": "aoebank.stats/1"},
    ),
    "hits": Verb(
        summary="Tell which look-ups found a record, and which records of a bank nobody used.",
        function="reading.api:hits",
        report="reading.hits:HitsReport",
    ),
    "diff": Verb(
        summary="Compare two bank files or trees, record by record.",
        function="diffing.api:diff",
        show="diffing.report:show",
        format_help="How to write the difference.",
        pages={"markdown": "diffing.markdown:diff_markdown", "html": "diffing.page:diff_html"},
        extra={
            "fail_on_regression": Param(
                kind=str,
                default=None,
                metavar="RATIO",
                help="Exit with 1 only for records slower by more than this.",
            ),
            "stat": Param(help="Only the figures per soc_version and op_type."),
            "has_all": Param(
                flags=("--all",), help="List each record; else equal edits are listed once."
            ),
            "skip_broken": Param(
                help="Tell of a file that cannot be compared, and compare the others."
            ),
        },
        order=("a", "b", "noise", "fail_on_regression"),
    ),
    "textconv": Verb(
        summary="Print a bank file as text, one line per member, as git shows it in diffs.",
        function="diffing.api:textconv",
        show="diffing.textconv:show",
    ),
    "merge": Verb(
        summary="Merge banks record by record, with a base or without.",
        function="merging.api:merge",
        calls="merging.api:merge_or_settle",
        report="merging.report:merge_report",
        pages={"html": "merging.page:page_of"},
        options={**_DRY, "is_verbose": "verbose"},
        extra={"verbose": Param(help="Name every file that was written.")},
        if_json="verbose",
    ),
    "edit": Verb(
        summary="Set or unset fields in all records of an operator, over all files at once.",
        function="editing.api:edit",
        report="editing.edit:EditReport",
        options=_DRY,
    ),
    "prune": Verb(
        summary="Take out records nobody is served by; by default those shadowed, or slower than "
        "built-in.",
        function="editing.api:prune",
        report="editing.prune:PruneReport",
        options=_DRY,
    ),
    "merge-driver": Verb(
        summary="Merge one bank file for git; `aoebank git install` tells git about it.",
        details="Exit code 0: merged; 1: conflicts, the result has our records for them; 1 with an "
        "error: a\nversion is damaged, 129: another error; the result is our version then.",
        function="git.api:merge_driver",
        show="git.driver:show",
        extra={
            "marker_size": Param(
                kind=int,
                metavar="%L",
                is_argument=True,
                help="Length of conflict markers; there are none.",
            )
        },
        order=("base", "ours", "theirs", "marker_size", "path"),
    ),
    "snapshot": Verb(
        summary="Record the state of a bank in .aoebank/history.db beside it.",
        function="history.api:snapshot",
        report="history.snapshot:SnapshotReport",
        bank="result.root",
    ),
    "log": Verb(
        summary="List the versions of a bank, newest first, with what each changed.",
        function="history.api:log",
        show="history.log:show",
        bank="result.root",
        extra={"verify": Param(help="Check that the snapshots are what was stored.")},
    ),
    "tag": Verb(
        summary="Name a snapshot, or list the names.",
        function="history.api:tag",
        report="history.snapshot:TagReport",
        bank="result.root",
    ),
    "restore": Verb(
        summary="Put a bank, or a part of it, back to how a version has it.",
        function="history.api:restore",
        report="history.restore:RestoreReport",
        bank="result.plan.root",
    ),
    "revert": Verb(
        summary="Take back what one version changed, record by record; later changes stay.",
        function="history.api:revert",
        report="history.restore:RevertReport",
        bank="result.plan.root",
    ),
    "blame": Verb(
        summary="Tell which version brought a record, who made it, and what was there before.",
        function="history.api:blame",
        report="history.blame:BlameReport",
        bank="result.root",
    ),
    "pack": Verb(
        summary="Put a bank into one file, with a manifest and a digest of everything in it.",
        function="shipping.api:pack",
        report="shipping.report:PackReport",
    ),
    "unpack": Verb(
        summary="Take a bank out of a pack, after every byte of it was checked.",
        function="shipping.api:unpack",
        show="shipping.report:show",
        extra={
            "output": Param(
                kind=str,
                flags=("-o", "--output"),
                default=None,
                metavar="DIR",
                help="The same as DIR.",
            )
        },
        order=("pack", "root", "output"),
    ),
    "convert": Verb(
        summary="Turn a bank into JSON lines or an SQLite table, or back: byte for byte, or not at "
        "all.",
        function="shipping.api:convert",
        report="shipping.report:ConvertReport",
    ),
    "git install": Verb(
        summary="Register the merge and diff drivers, and write .gitattributes.",
        function="git.api:git_install",
        report="git.install:InstallReport",
        member="plan",
        options=_DRY,
    ),
    "git uninstall": Verb(
        summary="Take the drivers and our lines of .gitattributes out again.",
        function="git.api:git_uninstall",
        report="git.install:InstallReport",
        member="plan",
        options=_DRY,
        constants={"verb": "uninstall"},
    ),
    "git check": Verb(
        summary="Tell whether git will merge the banks of this work tree record by record.",
        function="git.api:git_check",
        report="git.check:CheckReport",
        options={"are_conflicts_only": "conflicts"},
    ),
    "git verify-merge": Verb(
        summary="Merge the banks of merge commits again and compare with what was committed.",
        function="git.api:git_verify_merge",
        report="git.verify:VerifyMergeReport",
        member="verdicts",
        format_help="How to write what is wrong.",
        pages={"github": "git.verify:github_annotations"},
        order=("revisions", "output"),
    ),
    "quarantine add": Verb(
        summary="Name a record as known to be bad, and take it out of the bank.",
        function="quarantine.api:quarantine_add",
        report="quarantine.run:QuarantineReport",
        constants={"schema": "aoebank.quarantine-add/1"},
    ),
    "quarantine rm": Verb(
        summary="Take an entry out of the quarantine; the bank itself stays as it is.",
        function="quarantine.api:quarantine_remove",
        report="quarantine.run:QuarantineReport",
        constants={"schema": "aoebank.quarantine-rm/1"},
    ),
    "quarantine list": Verb(
        summary="List what is in quarantine, and what of it the bank holds all the same.",
        function="quarantine.api:quarantine_list",
        show="quarantine.run:show",
    ),
}
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
    "schema import": ("aoebank schema import git:v9.1.0 --json cann-9.1.0.json",),
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
        "aoebank report mine/ theirs/ --html banks.html",
    ),
    "hits": (
        "aoebank hits ~/ascend/log/debug/plog",
        "aoebank hits result/summary.json --bank banks/",
    ),
    "diff": (
        "aoebank diff old/ new/",
        "aoebank diff git:HEAD~1 . --fail-on-regression 5%",
        "aoebank diff snapshot:v1 . --html diff.html",
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
    "tag": ("aoebank tag v1 --root banks/", "aoebank tag"),
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
        "aoebank convert study.db -o results/",
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
        "3 an error   4 a bug   130, 143, 129 interrupted",
    ),
}
