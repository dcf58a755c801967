#!/usr/bin/env bash
# Expected: AKG's look-up can find each kernel, shape and type of the repository that MindSpore ships
# for the AI cores of Ascend, and reads each attribute.
# Happens: a batched product is stored under the shapes of two tensors and the types of four, and
# three products under `Fuzzy_MatMul`, a kernel that nothing makes a key of. One attribute stands
# beside `attrs`, where nothing reads it.
# Seen with: mindspore 2.10.0 (its own function for keys, run without the rest), Python 3.11;
# 2026-11-29.
# Matters: measured tilings lie in the bank and are never used, and no tool says so.
# Handled in: aoebank/formats/akg/format.py (AB313, AB211).
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
PIP_NO_DEPS=1 venv/bin/python -m pip install --quiet --no-compile mindspore==2.10.0
venv/bin/python -W ignore - <<'PY'
import ast
import json
import sys
from importlib.metadata import distribution, version

wheel = distribution("mindspore")
source = wheel.locate_file("mindspore/_akg/akg/composite/build_module.py").read_text()
repository = json.loads(wheel.locate_file("mindspore/_akg/akg/config/repository.json").read_bytes())
tree = ast.parse(source)
tree.body = [node for node in tree.body if getattr(node, "name", "") == "generate_trait"]
scope = {}
exec(compile(tree, "build_module.py", "exec"), scope)


def tensor(name):
    return {"tensor_name": name, "shape": [8, 16], "data_type": "float16"}


operator = {
    "name": "Mul",
    "input_desc": [[tensor("a")], [tensor("b")]],
    "output_desc": [tensor("c")],
}
kernel = {
    "input_desc": operator["input_desc"],
    "output_desc": operator["output_desc"],
    "op_desc": [operator],
}
compute, shapes, types = scope["generate_trait"](kernel)
print("mindspore", version("mindspore"), "makes the keys", compute, shapes, types)


def count(trait):
    return sum(1 + part.count("-") for part in trait.split("."))


lost = []
for name, answers in repository.items():
    if not name[0].isdigit():
        lost.append(name)
        continue
    for shape, by_type in answers.items():
        if shape == "metadata":
            lost += [f"{name} metadata {other}" for other in by_type if other != "attrs"]
            continue
        lost += [f"{name} {shape} {kind}" for kind in by_type if count(shape) != count(kind)]
print(f"{len(repository)} kernels; never asked for:", *lost, sep="\n  ")
holds = count(shapes) == count(types) == 3 and len(lost) == 3
sys.exit(0 if holds else "behaviour changed: other entries than the three known ones")
PY
