"""A run of `aoe`: options, cases, kinds of tuning in order, and what each run writes."""
