"""Collection of operators and modules of a script, for `aoe --model_path`."""
