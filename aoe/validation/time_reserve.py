"""Time reserve: seconds of a limit kept for validation and writing, estimated from the run so far.

Everything behind the search loads the whole model anew, which takes seconds for a large one. What
it took to load and to run it once is known from the first profile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aoe.execute.samplers import SETTLED_US
from aoe.execute.tasks import PAIRS_OF_TWO_ROUNDS
from aoe.measurement import QUIET_SHARE, MeasurePolicy
from aoe.ort.profile import LEAST_RUNS, ModelProfile, profile_runs
from aoe.tuner.live_report import Stopwatch
from aoe.tuner.policies import final_policy, single_run_policy, variant_policy

PROCESSES = 5
"""Worker processes the final comparison is spread over."""
HURRIED_PROCESSES, LEAST_PROCESSES = 4, 2
"""The same where time is short, each loading both models once, every other one the tuned one first.
With two, a gain of 14 % can be proven, with one of 26 %; what one does not prove is not decided."""
_BUSY_PROCESSES = 8
"""The same on a busy machine, where processes scatter by 3 to 5 %: four of them prove gains of 10
to 12 % then, eight of 5 to 8 %."""
_PROCESS_S = 1.0
"""A worker ends, and another one starts, on a quiet machine."""
_LEAST_SHARE_GIVEN = 0.2
"""Beside more neighbours than that no limit of time holds; it is not all kept for them."""
_LINK_S = 1.0
"""The kernels of a model are linked, and what they save in it is profiled, on a quiet machine."""
_RUNS_BEFORE = 3
"""Of each session, before the first pair: results, calibration of the samples."""
_HURRIED_PAIRS, _LEAST_PAIRS, _LEAST_FROM = 4, 2, 0.5
"""Pairs of a process in a hurry. The second number is for calls of which four pairs cost more than
the third number times what beginning the process does: the place of a process in memory is most of
what it scatters by, so that another process tells more than further pairs. Each other point of a
range has as many as cost no more than those, fewer than `PAIRS_OF_TWO_ROUNDS`."""
_PAIRS_SHARE = 0.25
"""What pairs may cost beyond those, as a share of what beginning a process with its models does."""
_SCATTERED_PAIRS, _HURRIED_WIDTH = 24, 0.04
"""Most pairs of a process in a hurry, and the half-width of their interval that is enough: less
than what the place of its memory does. No time is kept for them."""
_PAIRS_KNOWN = 6
"""Pairs an interval needs; a measurement that takes long ends with them."""
_SHARE, _HURRIED_SHARE, _LEAST_SHARE = 0.25, 0.62, 0.75
"""Most of the time left that is kept for a thorough judgement, for a hurried one, and for one by
the least processes: what is not judged is not used, and was found in vain. With half of it, three
processes fitted where a model takes 2 s to load and 0.1 s to run, and left a gain of 1.1x open."""
_FINISHING_WRITES = 2.5
"""Times the weights are written once: they are hashed, packed with what kernels read, synced."""
_BEYOND_SHARE, _BEYOND_S = 0.1, 5.0
"""Part of a time limit, and seconds, that a run may go on for beyond it."""
GROUP_TESTS = 10
"""Comparisons with and without groups of kernels, for the few that lose among dozens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCosts:
    """Seconds that sessions, runs and comparisons of this model take."""

    load_s: float = 0.0  # Loading it into a session
    run_s: float = 0.0  # One run, untuned; with inputs of several shapes, of those that take most
    elsewhere_s: tuple[float, ...] = ()  # The same at each other point of a range
    write_s: float = 0.0  # Writing its weights once
    process_s: float = _PROCESS_S  # Ending a worker and starting another one, which takes CPU time
    link_s: float = _LINK_S  # Linking its kernels, which takes CPU time, too
    # Processes of a final comparison in a hurry there should be time for
    processes: int = HURRIED_PROCESSES

    @classmethod
    def of(cls, profile: ModelProfile, *, write_s: float) -> ModelCosts:
        """Return the costs of the later phases, from the first profile."""
        run_s = profile.model_us / 1e6
        given_share, is_quiet = share_given(profile), profile.given_share >= QUIET_SHARE
        return cls(
            load_s=max(0.0, profile.load_s - run_s),
            run_s=run_s,
            write_s=write_s,
            process_s=_PROCESS_S / given_share,
            link_s=_LINK_S / given_share,
            processes=HURRIED_PROCESSES if is_quiet else _BUSY_PROCESSES,
        )

    @classmethod
    def of_comparison(cls, seconds: float, model_us: float) -> ModelCosts:
        """Return the costs from a hurried comparison of a model with itself, in a new process."""
        run_s, sessions = model_us / 1e6, _sessions(_HURRIED_PAIRS)
        runs_s = sessions * (_RUNS_BEFORE + _HURRIED_PAIRS) * run_s
        return cls(load_s=max(0.0, seconds - _PROCESS_S - runs_s) / sessions, run_s=run_s)

    def comparison_s(
        self,
        policy: MeasurePolicy,
        elsewhere: Sequence[MeasurePolicy] | None = None,
        *,
        rounds: int = 2,
    ) -> float:
        """Return the most a comparison in a process of its own should take, at all points.

        Args:
            policy: Of the comparison.
            elsewhere: Policies at the other points; None for those that suit them.
            rounds: Most times both models are loaded, see `ComparisonTerms.orders`.
        """
        sessions = _sessions(policy.pairs_max, rounds)
        points_s = _point_s(policy, self.run_s, sessions)
        policies = self.elsewhere(policy) if elsewhere is None else elsewhere
        for run_s, other in zip(self.elsewhere_s, policies, strict=True):
            points_s += _point_s(other, run_s, sessions)
        return self.process_s + sessions * self.load_s + points_s

    def warmed(self, policy: MeasurePolicy) -> MeasurePolicy:
        """Return a policy without a warm-up where calls are long.

        A session has run for its results and to calibrate its samples: of a BERT of six layers
        three more pairs would be a fifth of the CPU time of a process.
        """
        return replace(policy, warmup=0) if self.run_s > SETTLED_US / 1e6 else policy

    def elsewhere(self, policy: MeasurePolicy) -> tuple[MeasurePolicy, ...]:
        """Return the policies of a comparison at the other points: short calls have more pairs."""
        pairs = policy.pairs_max
        if pairs > policy.pairs_min or pairs < _LEAST_PAIRS:  # what is enough, the policy says
            return (policy,) * len(self.elsewhere_s)
        most = max(pairs, PAIRS_OF_TWO_ROUNDS - 2)
        affordable = (
            2 * int(pairs * self.run_s / (2 * run_s)) if run_s > 0 else most
            for run_s in self.elsewhere_s
        )
        counts = (max(pairs, min(most, count)) for count in affordable)
        return tuple(replace(policy, pairs_min=count, pairs_max=count) for count in counts)

    def at_points(self, points_s: Sequence[float]) -> ModelCosts:
        """Return the costs of a model that is run at several points, by the seconds of a run."""
        return replace(self, run_s=points_s[-1], elsewhere_s=tuple(points_s[:-1]))

    def at_each(self) -> tuple[ModelCosts, ...]:
        """Return the costs at each of the other points alone."""
        return tuple(replace(self, run_s=one, elsewhere_s=()) for one in self.elsewhere_s)

    @property
    def finishing_s(self) -> float:
        """Time of the steps that always follow: hashing, packing and syncing parts, reports."""
        return 0.5 + _FINISHING_WRITES * self.write_s

    @property
    def in_turns_s(self) -> float:
        """Return the seconds of the shortest profiles of two models, twice in turns."""
        return 4 * self.profiling_s(LEAST_RUNS)

    def profiling_s(self, runs: int) -> float:
        """Return the seconds of a profile of so many runs that count."""
        return self.load_s + profile_runs(runs, self.run_s) * self.run_s

    def hurried(self, policy: MeasurePolicy, *, is_scattered: bool = False) -> MeasurePolicy:
        """Return a policy that takes as little time as one process of several may.

        What a session runs for its results and to calibrate its samples has warmed it up. There
        are two pairs of long calls and four of others, and more where they cost little beside
        loading, in one round all of them. Of fixed shapes more follow where pairs scatter, as many
        as take half of what loading does: more processes would cost more than they tell.

        Args:
            policy: Of one process of the final comparison.
            is_scattered: True if pairs of earlier processes scatter by more than two of them even
                out.
        """
        pairs, most = _HURRIED_PAIRS, PAIRS_OF_TWO_ROUNDS - 2
        if self.run_s > 0:
            begun_s = self.process_s + _sessions(_HURRIED_PAIRS) * self.load_s
            is_long = 2 * _HURRIED_PAIRS * self.run_s > _LEAST_FROM * begun_s
            if is_long and not is_scattered:
                pairs = _LEAST_PAIRS
            pairs = max(pairs, min(most, 2 * int(_PAIRS_SHARE * begun_s / (4 * self.run_s))))
            if not self.elsewhere_s:
                most = max(pairs, min(_SCATTERED_PAIRS, 2 * int(begun_s / (8 * self.run_s))))
                width = max(policy.target_half_width, _HURRIED_WIDTH)
                scattered = replace(policy, pairs_min=pairs, pairs_max=most)
                return replace(scattered, target_half_width=width, warmup=0, tries=1)
        return replace(policy, pairs_min=pairs, pairs_max=pairs, warmup=0, tries=1)

    def hurried_s(self, policy: MeasurePolicy) -> float:
        """Return the seconds of a comparison by such a policy whose pairs do not scatter."""
        hurried = self.hurried(policy)
        return self.comparison_s(replace(hurried, pairs_max=hurried.pairs_min), rounds=1)

    def early_proof_s(self, threads: int, processes: int = HURRIED_PROCESSES) -> float:
        """Return the seconds of an early proof by so many processes, and of writing its model."""
        each_s = self.hurried_s(final_policy(threads))
        return self.finishing_s + self.link_s + processes * each_s

    def early_processes(self, threads: int, left_s: float) -> int:
        """Return the processes of an early proof there is time for, its model written."""
        return int(
            (left_s - self.early_proof_s(threads, 0)) / self.hurried_s(final_policy(threads))
        )

    def validation_s(
        self, left_s: float, screen: MeasurePolicy, final: MeasurePolicy, finals: int = 1
    ) -> float:
        """Return the seconds that are kept for all that follows the search.

        Args:
            left_s: Seconds until the time limit.
            screen: Policy of a comparison while kernels are chosen.
            final: Policy of one process of the final comparison.
            finals: Comparisons of that kind.
        """
        free_s = max(0.0, left_s - self.finishing_s)
        wanted_s = finals * PROCESSES * self.comparison_s(final)
        wanted_s += GROUP_TESTS * self.comparison_s(screen)
        one_s = finals * self.hurried_s(final)
        memory_s = finals * self.comparison_s(single_run_policy(final.threads))
        kept_s = max(
            min(_SHARE * free_s, self.link_s + wanted_s),
            min(_HURRIED_SHARE * free_s, self.link_s + memory_s + self.processes * one_s),
            # one more: now and then one takes twice as long
            min(_LEAST_SHARE * free_s, self.link_s + (LEAST_PROCESSES + 1) * one_s),
        )
        return min(left_s, self.finishing_s + kept_s)


class ProcessPace:
    """What the processes of a comparison take, by those that have run.

    Args:
        process_s: Seconds in which one should start.
    """

    def __init__(self, process_s: float) -> None:
        self._process_s = process_s
        self._compared: float | None = None  # Of what is reckoned, as far as one has told
        self._start = 1.0

    def seconds(self, compared_s: float, *, started: int, count: int = 1) -> float:
        """Return the seconds of so many processes.

        Args:
            compared_s: What each is reckoned to take once it has started.
            started: Processes that start before the first of them, beside each other.
            count: How many.
        """
        compared = self._start if self._compared is None else self._compared
        return self._start * starting_s(self._process_s, started) + count * compared * compared_s

    def processes_in(
        self,
        left_s: float,
        compared_s: float,
        *,
        started: int,
        waiting: int,
        beside: int,
        most: int,
    ) -> int:
        """Return the number of processes that fit into the time left.

        Args:
            left_s: Seconds.
            compared_s: As above.
            started: Processes that start before the first of them, beside each other.
            waiting: Processes that have started by then, besides the first.
            beside: Further ones that start beside each other.
            most: Enough.
        """
        count, ready = 0, 1 + waiting
        spent_s = self.seconds(0.0, started=started)
        while count < most:
            if not ready:
                ready = min(beside, most - count)
                spent_s += self.seconds(0.0, started=ready)
            spent_s += self.seconds(compared_s, started=0)
            if spent_s >= left_s:
                break
            count, ready = count + 1, ready - 1
        return count

    def note(self, seconds: float, compared_s: float, *, started: int) -> None:
        """Keep what one has taken. Of the first, what starting took of it is not known."""
        if not started and compared_s > 0:
            self._compared = seconds / compared_s
        elif started and self._compared is not None:
            took_s = seconds - self._compared * compared_s
            self._start = max(0.0, took_s / starting_s(self._process_s, started))
        elif started:
            self._start = seconds / (starting_s(self._process_s, started) + compared_s)


def starting_s(process_s: float, count: int) -> float:
    """Return the seconds in which so many processes start: two start in the time of one."""
    return (1 + count) / 2 * process_s if count else 0.0


def share_given(profile: ModelProfile) -> float:
    """Return the share of the CPU time it asks for that a run is planned with."""
    return max(_LEAST_SHARE_GIVEN, profile.given_share)


NO_COSTS = ModelCosts()
"""Where there is no time limit, nothing has to be reckoned."""


def _point_s(policy: MeasurePolicy, run_s: float, sessions: int) -> float:
    """Return the seconds of a comparison at one point, from the first run on."""
    pair_s = 2 * run_s * (2 if run_s <= SETTLED_US / 1e6 else 1)
    least_s = max(policy.enough_s, _PAIRS_KNOWN * pair_s)
    pairs_s = min(policy.pairs_max * pair_s, 2 * least_s)
    return sessions * (_RUNS_BEFORE + policy.warmup) * run_s + pairs_s


def _sessions(most_pairs: int, rounds: int = 2) -> int:
    """Return the number of times models are loaded for one comparison: both in each round."""
    return 2 * rounds if most_pairs >= PAIRS_OF_TWO_ROUNDS else 2


def one_process_of(final: MeasurePolicy) -> MeasurePolicy:
    """Return the share of the final comparison's pairs that one process takes."""
    return replace(
        final,
        pairs_min=math.ceil(final.pairs_min / PROCESSES),
        pairs_max=math.ceil(final.pairs_max / PROCESSES),
    )


def beyond_limit(stopwatch: Stopwatch) -> Stopwatch:
    """Return the clock of a run with the time it may go on for beyond its limit.

    What is begun is finished, and what was found is compared by the least processes. A run that
    takes longer says why.
    """
    if stopwatch.limit_s is None:
        return stopwatch
    return replace(stopwatch, limit_s=(1 + _BEYOND_SHARE) * stopwatch.limit_s + _BEYOND_S)


def searching_time(
    stopwatch: Stopwatch, costs: ModelCosts, threads: int, finals: int = 1
) -> Stopwatch:
    """Return the time of a run but for what follows its search: so many final comparisons."""
    if stopwatch.limit_s is None:
        return stopwatch
    left_s = stopwatch.left_s()
    screen, final = variant_policy(threads, left_s=left_s), final_policy(threads, left_s=left_s)
    return stopwatch.keeping(costs.validation_s(left_s, screen, one_process_of(final), finals))
