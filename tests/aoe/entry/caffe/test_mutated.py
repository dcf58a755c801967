"""Mutated files: a model or one clear message, never anything else.

`AOE_CAFFE_MUTATIONS=20000 pytest tests/aoe/entry/caffe/test_mutated.py` tries more.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from support.caffe.layer_cases import IMAGE, LAYER_CASES, case_layer
from support.caffe.model_files import TestNet, prototxt, stored

from aoe.entry.caffe.files import load_caffe
from aoe.entry.protocol import ModelSource
from aoe.errors import ModelImportError, OptionError

_INPUTS = int(os.environ.get("AOE_CAFFE_MUTATIONS", "400"))
_ONE_TEST = 100
_TOKENS = (
    *(b"0", b"-1", b"1", b"2", b"7", b"1000000000", b"4294967295", b"4294967296", b"1e39", b"nan"),
    *(b"-9223372036854775809", b"9" * 400, b"0x", b"-", b"inf", b"1e-400", b"true", b"''", b'"x0"'),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b"<",
        b">",
        b":",
        b",",
        b"#",
        b"'",
        b'"',
        b"\\",
        b"\n",
        b"\r",
        b"\xff",
    ),
    *(b"dim", b"kernel_size: 3", b"axis: -1", b"layer {", b"include { phase: TRAIN }"),
    *(b'"\\377"', b'type: "PriorBox"', b"top", b"top: 'y0'", b"shape { dim: 0 }", b"layers", b"."),
)


def _files(rng: random.Random) -> tuple[bytes, bytes]:
    kind, param, more = rng.choice(LAYER_CASES)
    layer = case_layer(kind, param, **more)
    shapes = more.get("shapes", (IMAGE,))
    net = TestNet(inputs=dict(zip(layer.bottoms, shapes, strict=True)), layers=(layer,))
    options = {name: rng.random() < 0.3 for name in ("old_layers", "old_shapes", "doubles")}
    options["old_shapes"] &= all(blob.ndim <= 4 for blob in layer.blobs)
    blobs = {"tested": layer.blobs} if layer.blobs else {}
    blobs["other"] = (np.ones(3, np.float32),)  # a caffemodel without any layer is none
    return prototxt(net).encode(), stored(blobs, **options)


def _mutated(content: bytes, rng: random.Random, *, is_text: bool) -> bytes:
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(found) + 1)
        end = min(at + rng.choice((1, 1, 2, 8, 40)), len(found))
        match rng.randrange(6):
            case 0:
                found[at:end] = bytes(rng.randrange(256) for _ in range(end - at))
            case 1:
                del found[at:end]
            case 2:
                found[at:at] = found[rng.randrange(len(found) + 1) :][: end - at]
            case 3 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 4:
                del found[at:]
            case _:
                words = [*range(len(found))]
                if is_text and words:  # a word or number in place of another
                    at = rng.choice(words)
                    start = max(found.rfind(b" ", 0, at), found.rfind(b"\n", 0, at)) + 1
                    stops = [
                        stop for stop in (found.find(b"\n", at), found.find(b" ", at)) if stop > 0
                    ]
                    at, end = start, min(stops, default=len(found))
                found[at:end] = rng.choice(_TOKENS)
    return bytes(found)


@pytest.mark.parametrize("first", range(0, _INPUTS, _ONE_TEST))
def test_mutated_files_give_a_model_or_one_clear_message(tmp_path: Path, first: int) -> None:
    model, weight = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    outcomes = set()
    for number in range(first, first + _ONE_TEST):
        rng = random.Random(number)  # a find is run again by its number
        text, weights = _files(rng)
        which = rng.randrange(3)
        model.write_bytes(_mutated(text, rng, is_text=True) if which else text)
        weight.write_bytes(weights if which else _mutated(weights, rng, is_text=False))
        try:
            load_caffe(ModelSource(path=model, weight=weight))
            outcomes.add("model")
        except (ModelImportError, OptionError) as error:
            assert len(str(error)) < 2000, number
            assert "\n" not in error.headline, number
            assert str(error).startswith("--"), number
            outcomes.add("message")
        except Exception as error:
            error.add_note(f"input {number}")
            raise
    assert outcomes == {"model", "message"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.caffemodel", "net.prototxt"]
