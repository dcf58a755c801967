"""One operator: look it up, search, settle, write the bank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from aoe.bank.operators import OperatorBank, OperatorVerdict
from aoe.execute.runner import Runner
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.measurement import SpeedupEstimate, estimate_speedup
from aoe.results.files import RepoOutcome
from aoe.schedule import Schedule
from aoe.settings import TuneSettings
from aoe.tuning.opat.lookup import Lookup, look_up, settle
from aoe.tuning.opat.loop import OperatorSearch, SearchResult, SearchSettings
from aoe.tuning.opat.operators import Operator
from aoe.tuning.policies import final_policy, screen_policy
from aoe.tuning.progress import Progress
from aoebank import Event

_SMALL_SHARE = 0.02
"""Operators below this share of the model's time get a smaller budget, in proportion."""
_LEAST_TRIALS = 6
_WARM_TRIALS = 10
"""Enough for a workload when a similar one has just been tuned: it starts from that answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedOperator:
    """An operator with what the run found out about it.

    Attributes:
        operator: The workload and its places in the model.
        outcome: What became of it in the bank.
        reason: In words.
        schedule: Strategy to use; None leaves the operator to ONNX Runtime.
        estimate: Speed-up measured in this run or read from the bank's provenance.
        before_us: Time of the default for one place, microseconds.
        after_us: Time of the strategy.
        search: What was tried, None if nothing was.
    """

    operator: Operator
    outcome: RepoOutcome
    reason: str
    schedule: Schedule | None = None
    speedup: float | None = None
    estimate: SpeedupEstimate | None = None
    before_us: float | None = None
    after_us: float | None = None
    search: SearchResult | None = None


class OperatorTuner:
    """Tunes operators one after another.

    Args:
        settings: Options of the run.
        runner: The measuring worker.
        bank: Where answers come from and go to.
        progress: Is told about trials.
        out_of_time: True when the run's time limit is reached.
    """

    def __init__(
        self,
        settings: TuneSettings,
        *,
        runner: Runner,
        bank: OperatorBank,
        progress: Progress,
        out_of_time: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._runner = runner
        self._bank = bank
        self._progress = progress
        self._out_of_time = out_of_time

    def tune(self, operator: Operator) -> TunedOperator:
        """Return what is known about an operator, after a search where one is due.

        Raises:
            BankFormatError: the bank file is corrupt.
        """
        budget = self._budget(operator)
        lookup = look_up(
            self._bank,
            operator.workload,
            repeat_tune=self._settings.repeat_tune,
            trials=self._settings.trials,
        )
        quarantined = self._bank.quarantine_reason(operator.workload)
        if quarantined is not None:
            self._progress.warn(f"{operator.op_name}: its record counts as a miss, {quarantined}")
        if lookup.tune and not self._out_of_time():
            return self._search(operator, lookup, budget)
        return self._from_bank(operator, lookup)

    def _from_bank(self, operator: Operator, lookup: Lookup) -> TunedOperator:
        stored = lookup.stored
        reason = lookup.reason if not lookup.tune else "the time limit was reached"
        if stored is None:
            return TunedOperator(operator=operator, outcome=RepoOutcome.UNSATISFIED, reason=reason)
        return TunedOperator(
            operator=operator,
            outcome=RepoOutcome.RESERVED,
            reason=reason,
            schedule=stored.schedule,
            speedup=stored.speedup,
            before_us=_times(stored.cost_us, stored.speedup),
            after_us=stored.cost_us,
        )

    def _search(self, operator: Operator, lookup: Lookup, budget: int) -> TunedOperator:
        target = self._runner.target
        search = OperatorSearch(
            self._runner,
            get_family(operator.workload.op_type),
            operator.workload,
            KernelTarget(
                vector_lanes=target.vector_lanes,
                threads=target.core_num,
                l1_bytes=target.l1_bytes,
                l2_bytes=target.l2_bytes,
            ),
            self._search_settings(operator, budget),
        )
        result = search.run(
            out_of_time=self._out_of_time,
            report=lambda done, best: self._progress.trial(operator.op_name, done, budget, best),
        )
        stored, now = lookup.stored, None
        if stored is not None:
            again = search.measure_schedules(
                [stored.schedule], final_policy(self._runner.target.core_num)
            )[0]
            now = estimate_speedup(again) if again.is_correct else None
        outcome = settle(stored, result.estimate, now)
        return self._settled(operator, lookup, result, outcome)

    def _settled(
        self,
        operator: Operator,
        lookup: Lookup,
        result: SearchResult,
        outcome: RepoOutcome,
    ) -> TunedOperator:
        verdict = OperatorVerdict(
            event=Event(outcome.value),
            op_names=operator.op_names,
            estimate=result.estimate,
            measurement=result.measurement,
            search={
                "method": self._settings.search,
                "seed": self._settings.seed,
                # a search the time limit has cut short proves no more than it tried
                "limit": len(result.trials) if self._out_of_time() else self._settings.trials,
                "trials": len(result.trials),
            },
        )
        if outcome in (RepoOutcome.RESERVED, RepoOutcome.UNSATISFIED):
            self._bank.note([(operator.workload, verdict)])
            kept = self._from_bank(operator, lookup) if lookup.stored is not None else None
            reason = "nothing better was found"
            if kept is not None:
                return replace(kept, reason=reason, search=result)
            return TunedOperator(
                operator=operator,
                outcome=outcome,
                reason=reason,
                speedup=result.estimate.median if result.estimate else None,
                estimate=result.estimate,
                search=result,
            )
        return self._won(operator, result, outcome, verdict)

    def _won(
        self,
        operator: Operator,
        result: SearchResult,
        outcome: RepoOutcome,
        verdict: OperatorVerdict,
    ) -> TunedOperator:
        assert result.schedule is not None and result.configuration is not None
        assert result.estimate is not None and result.measurement is not None
        self._bank.save(operator.workload, result.schedule, result.configuration, verdict)
        before_us = result.measurement.baseline_latency_us
        return TunedOperator(
            operator=operator,
            outcome=outcome,
            reason="better than the default",
            schedule=result.schedule,
            speedup=result.estimate.median,
            estimate=result.estimate,
            before_us=before_us,
            after_us=before_us / result.estimate.median,
            search=result,
        )

    def _budget(self, operator: Operator) -> int:
        scaled = round(self._settings.trials * min(1.0, operator.share / _SMALL_SHARE))
        return max(min(_LEAST_TRIALS, self._settings.trials), scaled)

    def _search_settings(self, operator: Operator, budget: int) -> SearchSettings:
        warm = self._bank.nearest(operator.workload)
        return SearchSettings(
            method=self._settings.search,
            budget=min(budget, _WARM_TRIALS) if warm else budget,
            seed=self._settings.seed,
            screen=screen_policy(self._runner.target.core_num),
            final=final_policy(self._runner.target.core_num),
            warm_starts=warm,
            refusal=partial(self._bank.refusal, operator.workload),
        )


def _times(cost_us: float | None, speedup: float | None) -> float | None:
    return cost_us * speedup if cost_us is not None and speedup is not None else None
