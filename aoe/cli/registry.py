"""Sub-commands of `aoe` by name: one line each."""

from __future__ import annotations

WRITES_BANK = frozenset({"demo", "verify"})
"""Sub-commands that tune or measure into a bank, as tuning itself does."""

# what each is for; it lies in the module of its name
COMMANDS: dict[str, str] = {
    "doctor": "Show every setting and where it comes from; check machine, tools and places.",
    "demo": "Tune AlexNet for this CPU and show the bank that comes of it (under two minutes).",
    "compile": "Convert a model with what a bank has for it; nothing is tried or measured.",
    "verify": "Measure records of a bank again on this machine: do they still hold?",
    "plan": "Show what tuning a model would reuse, tune again, tune anew and drop.",
    "run": "Run a tuned model once and say what came out.",
    "benchmark": "Time a model against another one, interleaved, with a confidence interval.",
    "profile": "Show where the time of a model goes, operator by operator, and how much is lost.",
    "advise": "Say what loses time in a model, why, and which actions help: each is tried first.",
    "sign": "Sign a tuned model with an SSH key, so that others can tell who made it.",
    "inspect": "Show what is in a tuned model, or the timeline before and after gradient tuning.",
}
