"""The block size is found whatever thread pool the process uses."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from onnx import TensorProto, helper
from support.engine.cpu import CPU

from aoe.errors import RunError
from aoe.ort.sessions import session_options

PROBE = "from aoe.device.registry import DEVICES; print(DEVICES['cpu'].channel_block())"
SHARED = "from aoe.ort.sessions import use_shared_pool; use_shared_pool(2); "


@pytest.mark.parametrize("before", ["", SHARED], ids=["own pools", "shared pool"])
def test_block_size_does_not_depend_on_the_pool(before: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", before + PROBE], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == CPU.channel_block() > 0


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="about x86")
def test_there_is_no_convolution_of_channels_last_in_float32() -> None:
    """So a layout is blocked or plain; where such a kernel comes, it is one more choice."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 8, 8, 16)), ("w", (16, 16, 3, 3)), ("b", (16,)))
    ]
    names = [value.name for value in values]
    node = helper.make_node(
        "NhwcFusedConv", names, ["y"], domain="com.microsoft", kernel_shape=[3, 3]
    )
    graph = helper.make_graph([node], "one", values, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = session_options(threads=1, optimize=False)
    with pytest.raises(RunError, match=r"has no kernel of NhwcFusedConv"):
        CPU.open_session(proto.SerializeToString(), options)
