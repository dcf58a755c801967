#!/usr/bin/env bash
# Expected: Optuna tries values of the search space only; an enqueued value outside of it is
# refused or drawn again.
# Happens: numbers leave the space, categories do not. An enqueued 7.0 for a range of 0 to 1 and a
# 3 for multiples of 16 go to the objective as they are (with a warning) and become `best_params`;
# 33.7 for an integer becomes 33, and the text "32" the number 32. A fixed 100 of
# PartialFixedSampler for 1 to 64 is tried as well. An enqueued category that is no choice raises.
# Seen with: optuna 5.0.0 (enqueued numbers with 4.9.0, too), Python 3.11; 2026-11-28.
# Matters: a search warmed up with records of a bank measures and returns schedules that are
# illegal for the shape at hand, and these win.
# Handled in: aoe/tuner/search/genetic.py (genes are indices of choices, illegal ones are
# skipped).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --no-compile optuna==5.0.0
venv/bin/python -W ignore - <<'PY'
import sys

import optuna

optuna.logging.set_verbosity(optuna.logging.CRITICAL)


def study_with(values, sampler=None):
    study = optuna.create_study(sampler=sampler or optuna.samplers.RandomSampler(seed=0))
    if values:
        study.enqueue_trial(values)
    return study


print("optuna", optuna.__version__)
numbers = study_with({"share": 7.0, "tile": 3, "unroll": 33.7, "threads": "32"})
tried = []


def objective(trial):
    tried.append(
        (
            trial.suggest_float("share", 0, 1),
            trial.suggest_int("tile", 0, 64, step=16),
            trial.suggest_int("unroll", 1, 64),
            trial.suggest_int("threads", 1, 64),
        )
    )
    return 0.0 if len(tried) == 1 else 1.0


numbers.optimize(objective, n_trials=3)
best = tuple(numbers.best_params.values())
print("enqueued share 7.0 of 0..1, tile 3 of 0, 16 .. 64, unroll 33.7 and threads '32' of 1..64")
print("objective got", tried[0], "best_params", numbers.best_params)

fixed = study_with(
    {}, optuna.samplers.PartialFixedSampler({"tile": 100}, optuna.samplers.RandomSampler(seed=0))
)
fixed.optimize(lambda trial: float(trial.suggest_int("tile", 1, 64)), n_trials=1)
print("fixed 100 for 1..64, best_params", fixed.best_params)

category = study_with({"order": "kij"})
try:
    category.optimize(
        lambda trial: len(trial.suggest_categorical("order", ["ijk", "ikj"])), n_trials=1
    )
    refusal = "none"
except ValueError as error:
    refusal = str(error)
print("enqueued category 'kij':", refusal)

seen = {
    "the objective gets what was enqueued": tried[0] == (7.0, 3, 33, 32),
    "it becomes best_params": best == (7.0, 3, 33, 32),
    "so does a fixed 100": fixed.best_params == {"tile": 100},
    "a category that is no choice raises": "not in" in refusal,
}
changed = [what for what, holds in seen.items() if not holds]
sys.exit("behaviour changed, no longer true: " + "; ".join(changed) if changed else 0)
PY
