"""What the commands do, as functions: plain values in, the environment and the day filled in."""
