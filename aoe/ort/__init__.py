"""ONNX Runtime as host: sessions, its own optimisation, its layouts, its profiler.

The only place that loads it. From 1.29 on it keeps an identifier and a database below the home
directory, and sends what it runs to its makers, unless a variable says otherwise when it is
loaded. A tuner has no business with that. Source: onnxruntime pull request 27379; checked with
strace on 1.31.1.
"""

import sys

from aoe.settings import turn_off_telemetry

_loaded = sys.modules.get("onnxruntime")
if turn_off_telemetry() and _loaded is not None:  # by the user: what it still may
    _loaded.disable_telemetry_events()
