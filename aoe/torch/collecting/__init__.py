"""What a script computes, collected for `aoe --model_path`."""
