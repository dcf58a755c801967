"""The shapes of the documents `aoe` writes, see `document_shapes.py`; names have the program."""

from __future__ import annotations

from collections.abc import Mapping

from document_shapes import OTHERS, Each

_BY_THREADS = [{"threads": "count", "median_us": "number"}]
_PLANNED: Mapping[str, object] = {
    "key": "text",
    "op_type": "text",
    "op_names": ["text"],
    "kind": "text",
    "reason": "text",
}
_PROFILE: Mapping[str, object] = {
    "model": "text",
    "soc_version": "text",
    "cpu_model": "text",
    "threads": "count",
    "runs": "count",
    "model_us": "number",
    "model_min_us": "number",
    "model_us_by_threads": _BY_THREADS,
    "best_threads": "count?",
    "operators_us": "number",
    "lost_us": "number",
    "peak": {
        "threads": "count",
        "gflops_per_s": "number",
        "bandwidths": [{"name": "text", "working_bytes": "count", "gbytes_per_s": "number"}],
    },
    "kinds": [
        {
            "kind": "text",
            "operators": "count",
            "median_us": "number",
            "roofline_us": "number",
            "lost_us": "number",
            "flops": "count",
            "bytes": "count",
        }
    ],
    "operators": [
        {
            "name": "text",
            "op_names": ["text"],
            "op_type": "text",
            "op_types": ["text"],
            "reads": ["text"],
            "input_shapes": [(["count"], None)],
            "output_shapes": [(["count"], None)],
            "dtype": "text",
            "layout": "text",
            "calls": "count",
            "median_us": "number",
            "min_us": "number",
            "flops": "count?",
            "weight_bytes": "count?",
            "activation_bytes": "count?",
            "gflops_per_s": "number?",
            "gbytes_per_s": "number?",
            "roofline_us": "number?",
            "bound": "text",
            "lost_us": "number?",
            "peak_share": "number?",
            "warm_us": "number?",
            "us_by_threads": _BY_THREADS,
            "best_threads": "count?",
        }
    ],
    "timeline": [{"node": "text", "start_us": "number", "duration_us": "number"}],
    "counters": {
        "per_run": Each("number"),
        "instructions_per_cycle": "number?",
        "reason": "text",
    },
    "versions": Each("text"),
    "doubts": ["text"],
    "fusion": (
        [
            {
                "class": "text",
                "op_names": ["text"],
                "op_types": ["text"],
                "through_cache": "text",
                "stop": "text",
                "stopped_by_limit": "flag",
                "stopped_at": "text",
                "stopped_type": "text",
                "without_limits": "count",
                "runs_as": "count",
                "goes_on_here": "flag",
                "median_us": "number",
            }
        ],
        None,
    ),
}

_ADVICE: Mapping[str, object] = {
    "model": "text",
    "soc_version": "text",
    "cpu_model": "text",
    "threads": "count",
    "model_us": "number",
    "operators_us": "number",
    "lost_us": "number",
    "low_performers": [
        {
            "name": "text",
            "op_names": ["text"],
            "kind": "text",
            "median_us": "number",
            "lost_us": ("number", None),
            "causes": [{"cause": "text", "detail": "text"}],
        }
    ],
    "actions": [
        {
            "action": "text",
            "what": "text",
            "op_names": ["text"],
            "needs_retraining": "flag",
            "about_us": "number",
            "verdict": "text",
            "speedup": ("number", None),
            "speedup_low": ("number", None),
            "speedup_high": ("number", None),
            "pairs": "count",
            "reason": "text",
        }
    ],
    "not_tried": ["text"],
    "of_untuned": "flag",
    "worth_tuning": ["text"],
}
_SPEEDUP = dict.fromkeys(("speedup", "speedup_low", "speedup_high"), "number?")
LINES: Mapping[str, Mapping[str, object]] = {
    "aoe.progress/1": {
        "event": "text",
        "at_s?": "number",
        "started?": "text",
        "pid?": "count",
        "tuning_name?": "text",
        "mode?": "text",
        "is_last?": "flag",
        "limit_s?": "number?",
        "max_trials?": "count?",
        "tasks?": [{"key": "text", "name": "text", "computes": "text", "share": "number?"}],
        "key?": "text",
        "trials?": "count",
        "done?": "count",
        "outcome?": "text",
        "reason?": "text",
        "text?": "text",
        "result?": "text",
        "baseline_ms?": "number?",
        "tuned_ms?": "number?",
        **{f"{name}?": shape for name, shape in _SPEEDUP.items()},
    }
}
"""Lines of the files a run writes; the first one of a log has its schema."""
DOCUMENTS: Mapping[str, Mapping[str, object]] = {
    "aoe.watch/1": {
        "runs": [
            {
                "folder": "text",
                "state": "text",
                "modes": [
                    {
                        "tuning_name": "text",
                        "mode": "text",
                        "state": "text",
                        "started": "text",
                        "seconds": "number",
                        "limit_s": "number?",
                        "max_trials": "count?",
                        "trials": "count",
                        "step": "text",
                        "warnings": ["text"],
                        "baseline_ms": "number?",
                        "tuned_ms": "number?",
                        **_SPEEDUP,
                        "tasks": [
                            {
                                "key": "text",
                                "name": "text",
                                "computes": "text",
                                "share": "number?",
                                "state": "text",
                                "done": "count",
                                "trials": "count",
                                **_SPEEDUP,
                                "outcome": "text",
                                "reason": "text",
                            }
                        ],
                    }
                ],
            }
        ]
    },
    "aoe.doctor/1": {
        "ready": "flag",
        "settings": [
            {
                "name": "text",
                "value": "text",
                "source": "text",
                "place": "text",
                "option": "text",
                "file_key": "text",
                "variable": "text",
                "valid": "flag",
            }
        ],
        "checks": [{"name": "text", "verdict": "text", "found": "text", "advice": "text"}],
    },
    "aoe.plan/1": {
        "model": "text",
        "soc_version": "text",
        "core_num": "count",
        "base": "text",
        "group?": "text",
        "counts": dict.fromkeys(("reused", "retuned", "new", "dropped"), "count"),
        "most_s": "number",
        "ranges": ["text"],
        "left?": Each("count"),
        "subgraphs": [_PLANNED],
        "operators": [{**_PLANNED, "share": "number"}],
        OTHERS: [{**_PLANNED, "share?": "number"}],
    },
    "aoe.verify/1": {
        "bank": "text",
        "soc_version": "text",
        "core_num": "count",
        "holds": "flag",
        "dry_run": "flag",
        "left": "count",
        "records": [
            {
                "file": "text",
                "key": "text",
                "op_type": "text",
                "op_names": ["text"],
                "model": ("text", None),
                "verdict": "text",
                "reason": "text",
                "recorded_speedup": ("number", None),
                "recorded_low": ("number", None),
                "recorded_time": ("text", None),
                "recorded_by": ("text", None),
                "drift": ["text"],
                "speedup": ("number", None),
                "speedup_low": ("number", None),
                "speedup_high": ("number", None),
                "pairs": "count",
                "written": "flag",
            }
        ],
        "decided": [
            {
                "file": "text",
                "op_type": "text",
                "op_names": ["text"],
                "verdict": "text",
                "reason": "text",
                "speedup": ("number", None),
                "speedup_low": ("number", None),
                "speedup_high": ("number", None),
                "written": "flag",
            }
        ],
        "models": [
            {
                "model": "text",
                "shapes": "text",
                "verdict": ("text", None),
                "reason": "text",
                "speedup": ("number", None),
                "speedup_low": ("number", None),
                "speedup_high": ("number", None),
                "processes": "count",
                "kept": ["text"],
                "dropped": [{"name": "text", "reason": "text"}],
                "om": ("text", None),
                "written": "flag",
            }
        ],
        "passed_over": [{"file": "text", "key": "text", "reason": "text"}],
    },
    "aoe.advise/1": {**_ADVICE, "written": ["text"]},
    "aoe.advise-folder/1": {
        "folder": "text",
        "models": [
            {"file": "text", "advice?": _ADVICE, "error?": {"code": "text", "message": "text"}}
        ],
        "causes": [{"cause": "text", "models": "count", "operators": "count", "lost_us": "number"}],
        "actions": [
            {
                "action": "text",
                "needs_retraining": "flag",
                "tried": "count",
                "gains": ["text"],
                "best": "number",
            }
        ],
        "written": ["text"],
    },
    "aoe.profile/1": {
        **_PROFILE,
        "written": ["text"],
    },
    "aoe.profile_comparison/1": {
        "before": "text",
        "after": "text",
        "before_us": "number",
        "after_us": "number",
        "speedup": "number?",
        "doubts": ["text"],
        "kinds": [
            {
                "kind": "text",
                "places": "count",
                "before_us": "number",
                "after_us": "number",
                "speedup": "number?",
            }
        ],
        "operators": [
            {
                "op_names": ["text"],
                "kind": "text",
                "before": ["text"],
                "after": ["text"],
                "before_us": "number",
                "after_us": "number",
                "speedup": "number?",
            }
        ],
        "written": ["text"],
    },
}
