"""Early proofs: the tuned model that is there, whenever a run with a time limit is ended.

While the search goes on, kernels found so far are tried in the whole model. A model that is proven
faster is written at once, and better ones take its place: a run that is cut or killed leaves the
best one, and what the last comparison leaves undecided costs no more than was found since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from aoe.bank.operators import OperatorBank
from aoe.results.opat import OpatReport
from aoe.runs.model_mode import whole_model_ms
from aoe.runs.tuned_model import write_proven_model
from aoe.tasks.operators.chosen_kernel import ChosenKernel, lowest_precision
from aoe.tasks.operators.operator import TunedOperator
from aoe.tuner.live_report import LiveReport, Phase, Stopwatch
from aoe.tuner.tune_context import TuneContext
from aoe.validation.intervals import EARLY_LOOKS, least_early_gain
from aoe.validation.kernel_assembly import Assembly
from aoe.validation.kernels import model_comparer
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import HURRIED_PROCESSES, ModelCosts
from aoebank import plural

_FIRST, _SECOND = 1 / 3, 2 / 3
"""Parts of a time limit by which the first proof should be there, and by which a second one."""
_LEAST_SEARCH = 0.2
"""Part of the time to search that goes before any proof."""
_MOST_SHARE = 0.25
"""Most of a time limit that all proofs together may take that prove nothing."""
_MOST_OF_SEARCH, _MOST_ONCE_PROVEN = 0.6, 0.25
"""The same of what is left to search: a large model is compared once, behind its search. Where a
model is proven already, another proof only guards what was found since: in the last third of a
minute it took 8 s of the 20 s of search that there were."""
_LEAST_PROMISE = 0.06
"""Saving kernels promise together, as a share of the model's time, from which on a few processes
may prove something: they take 8 % at the least."""
_OF_PROMISE = 1.5
"""Most that kernels save in a model of what they promise alone: else no proof is tried that the
processes there is time for cannot give. Compiling and profiling for one took 4 s of a minute beside
two busy loops, where two processes prove 24 % and 8 % were promised."""
_MORE_PROMISE = 1.3
"""Factor by which kernels have to promise more than in the last try."""
_MOST_TRIES = 3
_SURE_IN_ONE = 1.26
"""Speed-up that one process alone proves, see docs/results.md."""
_MOST_KEPT = 0.5
"""Most of the time left that is kept for the last comparison by what an early one took."""

Proof = Callable[[TuneContext, Sequence[TunedOperator]], ValidationResult[ChosenKernel] | str]
"""Tries the model with what is tuned so far in the time of a run; returns it, or why it fails."""


@dataclass(slots=True, kw_only=True)
class Checkpoints:
    """Proves and writes the model with the kernels found so far, in the middle of a search."""

    tuning: TuneContext  # The run
    bank: OperatorBank  # Knows what earlier runs settled
    assembly: Assembly  # Puts the model together
    costs: ModelCosts  # What things take with this model
    report: LiveReport[OpatReport]  # Says what is proven
    prove: Proof  # Tries the whole model
    best: ValidationResult[ChosenKernel] | None = None  # The best model proven so far
    # Time to search, without what is kept for the last comparison.
    searching: Stopwatch = field(init=False)
    _began_s: float = field(init=False)
    _reserve_s: float = 0.0
    _promised: float = 0.0
    _tries: int = 0  # How often a proof was tried
    _vain_s: float = 0.0  # Seconds of proofs that have proven nothing

    def begin(self, searching: Stopwatch) -> Stopwatch:
        """Return the time to search, of which a proof may find that less of it is left."""
        self._began_s = searching.elapsed_s()
        self.searching = replace(searching, reserve_s=lambda: self._reserve_s)
        return self.searching

    @property
    def _form_speedup(self) -> float | None:
        """Speed-up of the graph operators are tuned in over the imported one, None if not known."""
        subject = self.tuning.subject
        if subject.chosen is not None or subject.float32_form is not None:
            return None
        return subject.written_as.speedup if subject.form_words and subject.written_as else 1.0

    def write_form(self) -> None:
        """Write the model in the form that was chosen for it, where one comparison proves that.

        Raises:
            OutputError: it cannot be written.
        """
        tuning, speedup = self.tuning, self._form_speedup
        if speedup is None or speedup < _SURE_IN_ONE or self.searching.limit_s is None:
            return
        gain = model_comparer(tuning, self.assembly, self.costs).unmeasured(())
        tuning.progress.step(f"proven so far: {speedup:.2f}x by {tuning.subject.form_words}")
        none: ValidationResult[ChosenKernel] = ValidationResult(
            kept=(), drops={}, comparison=gain.comparison, estimate=gain.estimate
        )
        write_proven_model(tuning, self.bank, self.assembly, none)
        self.report.update(speedup=speedup, is_proven=True)
        tuning.time.phases.begin(Phase.SEARCH)

    def look(self, tuned: Sequence[TunedOperator]) -> None:
        """Try the model with what is tuned so far, if a proof is due and there is time for it.

        Raises:
            OutputError: the model cannot be written.
        """
        promise = sum(map(_saved_share, tuned))
        if not self._is_due(promise):
            return
        self._promised, self._tries = promise, self._tries + 1
        stopwatch, began_s = self.tuning.time.stopwatch, self.searching.elapsed_s()
        assert stopwatch.limit_s is not None
        most_s = _MOST_SHARE * stopwatch.limit_s - self._vain_s
        most_s = min(most_s, self.searching.left_s())
        limited = replace(stopwatch, limit_s=began_s + most_s)
        within = replace(self.tuning, time=replace(self.tuning.time, stopwatch=limited))
        found = self.prove(within, tuned)
        took_s = stopwatch.elapsed_s() - began_s
        if isinstance(found, str):
            self.tuning.progress.step(f"not proven faster yet: {found}")
            self._learn(took_s)
            self._vain_s += took_s
        else:
            self._keep(found)
            self._learn(took_s * max(1.0, HURRIED_PROCESSES / found.processes))
        self.tuning.time.phases.begin(Phase.SEARCH)

    def _is_due(self, promise: float) -> bool:
        if self._form_speedup is None:  # that model is written, and proven against two others
            return False
        limit_s, passed_s = self.searching.limit_s, self.searching.elapsed_s()
        whole_s = self.tuning.time.stopwatch.limit_s
        if limit_s is None or whole_s is None or self._tries >= _MOST_TRIES:
            return False
        if promise < max(_LEAST_PROMISE, _MORE_PROMISE * self._promised):
            return False
        threads = self.tuning.machine.runner.target.core_num
        of_search = _MOST_OF_SEARCH if self.best is None else _MOST_ONCE_PROVEN
        most_s = min(_MOST_SHARE * whole_s - self._vain_s, of_search * self.searching.left_s())
        counts = [one for one in EARLY_LOOKS if self.costs.early_proof_s(threads, one) <= most_s]
        if not counts or least_early_gain(counts[-1]) * (1 - _OF_PROMISE * promise) > 1:
            return False
        by_s = (_FIRST if self.best is None else _SECOND) * whole_s
        from_s = self._began_s + _LEAST_SEARCH * (limit_s - self._began_s)
        return passed_s >= max(from_s, by_s - self.costs.early_proof_s(threads))

    def _learn(self, seconds: float) -> None:
        """Keep as much for the last comparison as this one shows that it takes.

        Args:
            seconds: A comparison by as many processes would have taken.
        """
        stopwatch = self.tuning.time.stopwatch
        assert self.searching.limit_s is not None and stopwatch.limit_s is not None
        kept_s = stopwatch.limit_s - self.searching.limit_s
        wanted_s = min(seconds, _MOST_KEPT * stopwatch.left_s())
        self._reserve_s = max(self._reserve_s, wanted_s - kept_s)

    def _keep(self, found: ValidationResult[ChosenKernel]) -> None:
        if self.best is not None and found.estimate.median < self.best.estimate.low:
            return
        self.best = found
        tuning, kernels = self.tuning, plural(len(found.kept), "kernel")
        form = self._form_speedup or 1.0
        speedup = form * found.estimate.median
        tuning.progress.step(f"proven so far: {speedup:.2f}x with {kernels}")
        write_proven_model(tuning, self.bank, self.assembly, found)
        own_ms = whole_model_ms(found, tuning.subject.streams)
        self.report.update(
            baseline_ms=own_ms * form if own_ms is not None else None,
            speedup=speedup,
            precision=lowest_precision(found.kept, tuning.subject.precision),
            memory=found.memory,
            is_proven=True,
        )


def _saved_share(tuned: TunedOperator) -> float:
    """Return the part of the model's time a kernel saves by what it has proven alone."""
    if tuned.schedule is None or not tuned.speedup:
        return 0.0
    return tuned.operator.share * max(0.0, 1 - 1 / tuned.speedup)
