"""Results of autotuners in the T4 format, as Kernel Tuner writes them and as their schema says."""
