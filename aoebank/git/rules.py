"""The rules of merges as git's settings name them: `git config aoebank.merge.policy ours`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aoebank.errors import UsageError
from aoebank.merging.decisions import MergeRules, Override, Policy, parse_override
from aoebank.parameters.ratio import parse_ratio
from aoebank.storage.git.config import list_settings

SECTION = "aoebank.merge"


def read_rules(cwd: Path) -> MergeRules:
    """Return the rules the settings of a repository and its user name.

    Raises:
        UsageError: a setting has no meaning; names the setting.
    """
    rules = MergeRules()
    overrides: list[Override] = []
    for key, value in list_settings(SECTION, cwd=cwd):
        name = key.removeprefix(f"{SECTION}.")
        if name == "override":
            overrides.append(_checked(key, value, parse_override))
        elif name in _SETTINGS:
            member, parse = _SETTINGS[name]
            rules = replace(rules, **{member: _checked(key, value, parse)})
        else:
            raise UsageError(
                "unknown setting",
                where=f"git config {key}",
                expected=", ".join((*_SETTINGS, "override")),
            )
    return replace(rules, overrides=tuple(overrides))


def parse_policy(text: str) -> Policy:
    """Return the policy a person wrote.

    Raises:
        UsageError: it is none.
    """
    try:
        return Policy(text)
    except ValueError as error:
        raise UsageError("is no policy", where=text, expected=", ".join(Policy)) from error


def parse_untimed(text: str) -> Policy:
    """Return the policy for records without times a person wrote.

    Raises:
        UsageError: it is none, or needs times.
    """
    policy = parse_policy(text)
    if policy is Policy.KEEP_BEST:
        raise UsageError("without times there is no best", where=text, expected="another policy")
    return policy


def _parse_switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise UsageError("is neither true nor false", where=text, expected="true or false")
    return _SWITCH[text.lower()]


_SWITCH = {  # as git reads them
    **dict.fromkeys(("", "true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "policy": ("policy", parse_policy),
    "untimed": ("untimed", parse_untimed),
    "noise": ("noise_ratio", partial(parse_ratio, option="--noise")),
    "containment": ("takes_containing", _parse_switch),
}


def _checked(key: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value)
    except UsageError as error:
        error.where = f"git config {key}"
        error.got = value
        raise
