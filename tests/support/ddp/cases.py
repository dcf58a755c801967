"""Names of what two processes do for the tests of gradients, in order."""

SAME_AS_DDP = (
    "plain",
    "bucket_view",
    "bucket_view_kept",
    "accumulate",
    "accumulate_view",
    "unused",
    "unused_accumulate",
    "static",
    "static_unused",
    "static_view",
    "mixed",
    "mixed_view",
    "mixed_static",
    "sparse",
    "autocast",
    "hook",
    "built_in_hook",
    "measuring",
    "measuring_static",
    "older_torch",
    "older_torch_accumulate",
    "older_torch_static",
)
"""Twins: one trains with plain DDP, one with exchanged buckets."""
COMPRESSED = ("allowed", "too_inexact", "left_alone")
GRADIENTS = (
    "recorded",
    "own_buckets",
    "tune_and_reuse",
    "tune_unsatisfied",
    "tune_repeatedly",
    "other_cluster",
    "other_link",
    "foreign_record",
    "readable_record",
    "missing_bank",
    "time_out_restored",
    "no_backward",
    "failing_step",
    "hanging_step",
    "dying_step",  # the last one takes a process with it
)
