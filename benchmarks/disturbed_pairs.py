"""Which pairs of a busy machine to leave out: the same pairs, judged by four rules.

    python benchmarks/disturbed_pairs.py                  # on a machine that is busy
    python benchmarks/disturbed_pairs.py --idle 0.3       # beside neighbours that leave 30 % idle

Two sessions whose threads sleep between the parts of a call run a chain of convolutions: against
itself, against a chain with a tenth more of them, and against itself on one thread, which is no
gain on an idle machine and reads as one here. Measurements follow each other for `--seconds` for
each length of the chain. The rules leave out no pair; pairs during which a thread lost its core; or
waited on a run queue, too; or whose calls ran on other threads, too. Printed are all measurements,
and those in which the second rule has enough pairs: how often a rule has enough, how often a clock
decides, how often that clock proves a gain, and the ratio of CPU time with the half-width of its
interval.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import median

import numpy as np
from busy_machine import neighbours
from false_accepts import blocks

from aoe.device.cpu.device import Cpu
from aoe.device.cpu.usage import involuntary_switches, read_usage
from aoe.measurement import (
    CallTime,
    MachineLoad,
    Measurement,
    MeasurePolicy,
    PairedSamples,
    estimate_speedup,
    measured,
    pairs_that_count,
    run_pairs,
)
from aoe.ort.sessions import session_options
from aoe.ort.thread_pools import ThreadPool
from aoe.tuner.policies import final_policy

RULES = ("none", "lost cores", "lost cores and waits", "and unlike threads")
"""What pairs are left out for."""
_CHAINS = (5, 10, 20, 40)
_SERIAL = "itself, one thread"
_CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The pairs of one measurement, judged by each rule.

    Attributes:
        left: Pairs that each rule keeps.
        by_rule: What each rule makes of them.
    """

    left: Mapping[str, int]
    by_rule: Mapping[str, Measurement]


def sampler(run: Callable[[], object], lost: list[bool]) -> Callable[[], CallTime]:
    """Return a function that takes a sample, and notes in `lost` whether a thread lost its core."""
    seen: deque[int] = deque(maxlen=2)

    def switches() -> int:
        seen.append(involuntary_switches())
        return seen[-1]

    take = Cpu().timer(run, repeats=1, switches=switches)

    def sample() -> CallTime:
        taken = take()
        lost.append(seen[0] != seen[1])
        return taken

    return sample


def judged(samples: PairedSamples, lost: Sequence[bool], load: MachineLoad) -> Judged:
    """Judge pairs of a busy machine by each rule.

    Args:
        samples: Pairs, marked by lost cores and waits, with the shares of the pool's threads.
        lost: Of each pair, True if a thread lost its core.
        load: Of the machine while they were taken.
    """
    some = samples._replace(baseline_pool_share=(), tuned_pool_share=())
    found = [some._replace(disturbed=marks) for marks in ((), tuple(lost), samples.disturbed)]
    pairs = dict(zip(RULES, [*found, samples], strict=True))
    return Judged(
        left={rule: len(pairs[rule].undisturbed.alike.tuned_us) for rule in RULES},
        by_rule={rule: measured(pairs_that_count(pairs[rule], load), load) for rule in RULES},
    )


def table(kinds: Mapping[str, Sequence[Judged]], enough: int = 10) -> str:
    """Return what each rule decided and proved, as Markdown."""
    lines = [
        "| pairs of | measurements | leaves out | applies | decided | gain proven | CPU time |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, found in kinds.items():
        kept = [one for one in found if one.left[RULES[1]] >= enough]
        for title, some in ((kind, found), (f"{kind}, ten keep their cores", kept)):
            lines += [_row(title, some, rule, enough) for rule in RULES if some]
    return "\n".join(lines)


def _row(title: str, found: Sequence[Judged], rule: str, enough: int) -> str:
    ours = [one.by_rule[rule] for one in found]
    applies = sum(one.left[rule] >= enough for one in found)
    decided = sum(one.counts for one in ours)
    proven = sum(one.counts and estimate_speedup(one.decisive, _CONFIDENCE).low > 1 for one in ours)
    by_cpu = [
        estimate_speedup(PairedSamples(one.baseline_cpu_us, one.tuned_cpu_us)) for one in ours
    ]
    ratio, width = (median(map(attrgetter(name), by_cpu)) for name in ("median", "half_width"))
    shares = (f"{count / len(found):.1%}" for count in (applies, decided, proven))
    return (
        f"| {title} | {len(found)} | {rule} | {' | '.join(shares)} | {ratio:.2f}x +-{width:.1%} |"
    )


def main() -> int:
    """Take the pairs, print the table."""
    arguments = _arguments()
    policy = replace(final_policy(arguments.threads), warmup=0)
    kinds: dict[str, list[Judged]] = {"itself": [], "a tenth more": [], _SERIAL: []}
    with neighbours(arguments.idle):
        for length in arguments.chains:
            for kind, found in kinds.items():
                more = max(1, length // 10) if kind == "a tenth more" else 0
                threads = 1 if kind == _SERIAL else policy.threads
                runs = chain_run(length, more, policy.threads), chain_run(length, 0, threads)
                found += _measured(*runs, policy, arguments.seconds)
    print(table({kind: found for kind, found in kinds.items() if found}))
    return 0


def _measured(
    baseline_run: Callable[[], object],
    tuned_run: Callable[[], object],
    policy: MeasurePolicy,
    seconds: float,
) -> Iterator[Judged]:
    """Yield measurements of a busy machine."""
    runs = baseline_run, tuned_run
    for run in (*runs, *runs):
        run()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        lost: tuple[list[bool], list[bool]] = ([], [])
        baseline, tuned = (sampler(*side) for side in zip(runs, lost, strict=True))
        before = read_usage()
        samples = run_pairs(baseline, tuned, policy)
        load = MachineLoad(use=read_usage().since(before), threads=policy.threads)
        if not load.is_quiet:
            yield judged(samples, [any(pair) for pair in zip(*lost, strict=True)], load)


def chain_run(length: int, more: int, threads: int) -> Callable[[], object]:
    """Return a run of a chain of so many convolutions and some more, by threads that sleep."""
    options = session_options(threads=threads, optimize=True, pool=ThreadPool.SLEEPING)
    session = Cpu().open_session(blocks(more, length).SerializeToString(), options)
    (given,) = session.get_inputs()
    feed = {given.name: np.random.default_rng(0).normal(size=given.shape).astype(np.float32)}
    return lambda: session.run(None, feed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chains", type=int, nargs="+", default=_CHAINS, help="convolutions")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each pair of models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--idle", type=float, default=1.0, help="share neighbours leave of a core")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
