"""Small trees with each finding, and the smallest bank files with none."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from support.runtime_kb_lines import (
    line,
    name_for,
    whole_record,
    with_info,
    with_knowledge,
)
from support.sample_bank_files import CUBE

B = "x86-64-v4_2_AiCore_LRN.json"
A = "Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json"
C = "repository_ascend910B3_matmul.json"
E = "ascend910b3_l2cache.json"
F = "Ascend910B3_gradient_fusion.json"
H = "a8w8_tuned_gemm.csv"
G = "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8.json"
SIDE_CAR = f"{B}.provenance.jsonl"
KEY = hashlib.md5(b"{}", usedforsecurity=False).hexdigest()
ENTRY = {
    "schema": "aoebank.provenance/1",
    "key": KEY,
    "event": "add",
    "time": "2026-03-01T12:00:00Z",
    "engine": "aoe 1",
}
QUARANTINE = ".aoebank/quarantine.jsonl"
BAD = {
    "schema": "aoebank.quarantine_entry/1",
    "key": KEY,
    "reason": "aicore error",
    "who": "me",
    "when": "2026-03-01T12:00:00Z",
}
SUBGRAPH: dict[str, Any] = {
    "feature": {"feature": [1]},
    "graphID": "1",
    "strategy": {"group": [{"cut": [1], "fusionType": [True], "scopeId": [-1]}]},
}


def unified(key: str = KEY, *candidates: object) -> str:
    return json.dumps({key: list(candidates) or [candidate()]})


def candidate(**members: object) -> dict[str, object]:
    return {"knowledge": {}, "info_dict": {}, "cost_time": 1.0, **members}


def item(hash_: str = "1", sizes: object = (4,), times: object = (1,)) -> dict[str, object]:
    return {"modelhash": hash_, "modelvalue": {"gradientSize": sizes, "gradientTime": times}}


def without_field(op: str, name: str) -> str:
    record = whole_record(op)
    del record["knowledge"][name]
    return json.dumps(record)


def runtime(op: str, text: str) -> dict[str, str]:
    return {name_for(op): text}


def graph(*lines: object) -> dict[str, str]:
    return {E: "\n".join(json.dumps(row) for row in ({"version": "2.1"}, *lines))}


# code: the files of a small tree that has it, and nothing else once its hint was followed
def table(*lines: str) -> str:
    """Return a table of aiter."""
    return "\n".join(["cu_num,M,N,K,kernelId,us", *lines]) + "\n"


K = "vector_add-kernel_tuner.json"
R = "vector_add-t4-results.json"


def cache(*milliseconds: str, source: str = '"kernel_source": "0", ', end: str = "}\n}") -> str:
    """Return a cache of Kernel Tuner."""
    results = [f'"{n}": {{"x": {n}, "time": {time}}}' for n, time in enumerate(milliseconds, 1)]
    head = '{"device_name": "A100", "kernel_name": "k", "tune_params_keys": ["x"], '
    return f'{head}{source}"cache": {{\n' + ",\n".join(results) + end


def results(*milliseconds: str, device: str = "A100", compilation: str = "compilation_time") -> str:
    """Return results in the T4 format."""
    start = f'"times": {{"{compilation}": 1}}, "invalidity": "correct", "correctness": 1'
    items = [
        f'{{"configuration": {{"x": {n}}}, {start}, '
        f'"measurements": [{{"name": "time", "value": {time}, "unit": "ms"}}]}}'
        for n, time in enumerate(milliseconds, 1)
    ]
    return f'{{"results": [{", ".join(items)}], "metadata": {{"device_name": "{device}"}}}}'


ROW = {"BLOCK_SIZE_M": 16, "num_warps": 4}


def rows(**named: dict[str, Any]) -> str:
    """Return a configuration of vLLM."""
    return json.dumps({"1": ROW, **named})


def kernels(named: dict[str, Any]) -> str:
    """Return a repository of AKG."""
    return json.dumps({**named, "1.Sqrt1.2": {}}, indent=4)


def trial(workload: int, time_s: float = 1e-5) -> str:
    """Return a line of a database of MetaSchedule."""
    return json.dumps([workload, [[[], []], [time_s], {"kind": "cuda"}, None]]) + "\n"


WORKLOADS = {"database_workload.json": '["1", "e30="]\n' * 6}
TREES: dict[str, dict[str, str | bytes]] = {
    "AB102": {B: unified(KEY, candidate(origin="é")).replace("\\u00e9", "é").encode("latin-1")},
    "AB103": {B: "{"},
    "AB104": {B: f"<<<<<<< ours\n{unified()}\n=======\n{unified()}\n>>>>>>> theirs\n"},
    "AB105": {A: "\ufeff" + line()},
    "AB106": {B: "{\r\n}\r\n"},
    "AB107": {B: "{} {}"},
    "AB108": {B: '{"a": ' + "[" * 101 + "]" * 101 + "}"},
    "AB109": {B: unified().replace('"cost_time"', '"cost_time": 2, "cost_time"')},
    "AB110": {B: ""},
    "AB111": {B: unified(), SIDE_CAR: '{"sch'},
    "AB112": {A: line() + "\n\n"},
    "AB113": {A: f"{line()}\n[]\n{{}}\n"},
    "AB114": {A: line() + "\n" * 9},
    "AB115": {B: "{}"},
    "AB116": {B: unified(KEY, candidate()).replace("1.0", "9" * 4301)},
    "AB117": {B: "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"},
    "AB119": {K: cache("1", "2", end=",")},
    "AB201": {B: "[]"},
    "AB202": {B: json.dumps({KEY: {}})},
    "AB203": {B: json.dumps({KEY: [candidate()], "0" * 32: []})},
    "AB204": {B: unified(KEY, 17)},
    "AB205": {A: f"{line()}\n{json.dumps({**json.loads(line()), 'info_dict': {}})}"},
    "AB206": {B: unified(KEY, candidate(cost_time="1"))},
    "AB207": {B: unified(KEY, candidate(cost_tiem=1))},
    "AB208": {B: unified(), SIDE_CAR: json.dumps({**ENTRY, "schema": "aoebank.provenance/9"})},
    "AB209": runtime("Conv2DV2", without_field("Conv2DV2", "nBL1")),
    "AB210": runtime("Conv3D", without_field("Conv3D", "reserved1")),
    "AB211": {A: with_knowledge(**{"baseM ": 1})},
    "AB212": runtime("FFN", line(op="FFN")),
    "AB213": {F: json.dumps([item(sizes=[4, 4])])},
    "AB214": {E: json.dumps(SUBGRAPH)},
    "AB215": runtime("ExtendConvTranspose", line()),
    "AB216": runtime("Conv2DV2", without_field("Conv2DV2", "mStep")),
    "AB217": runtime("Conv2DV2", without_field("Conv2DV2", "khL1")),
    "AB218": runtime("Conv2DV2", without_field("Conv2DV2", "multiNBL1")),
    "AB219": {H: table("80,1,2,3,0,9.5", "80,1,2")},
    "AB220": {H: table("80,1,2,3,0,9.5", "80,2,2,3,9.5,0")},
    "AB221": {H: table("80,1,2,3,0,9.5", "cu_num,M,N,K,kernelId,us")},
    "AB224": {R: results("1", compilation="compilation")},
    "AB301": {B: unified()[:-1] + ", " + unified()[1:]},
    "AB302": {B: unified(KEY.upper())},
    "AB303": {B: unified("0" * 32)},
    "AB304": {B: unified(KEY, candidate(), candidate(info_dict={"a": 1}, cost_time=2.0))},
    "AB305": {A: line() + "\n" + line()},
    "AB306": {A: line() + "\n" + with_knowledge(baseM=2)},
    "AB307": {A: line(id=1)},
    "AB308": {A: line(id=2**32)},
    "AB309": {F: json.dumps([item("0x1F")])},
    "AB311": graph(SUBGRAPH, {**SUBGRAPH, "graphID": "2"}),
    "AB312": {F: json.dumps([item(), item()])},
    "AB313": {G: rows(default=ROW)},
    "AB314": {G: rows(**{" 16": ROW})},
    "AB315": {H: "M,N,K,us\n1,2,3,9.5\n"},
    "AB316": {"MI300X-GEMM-A8W8.json": json.dumps({"M_LEQ_8": ROW, "M_GEQ_64": ROW})},
    "AB319": {K: cache("1", source="")},
    "AB401": {B: unified(KEY, candidate(cost_time=-1))},
    "AB402": {B: unified(KEY, candidate(cost_time=0))},
    "AB403": {B: unified(KEY, candidate(cost_time=2.0), candidate())},
    "AB404": {B: unified(), SIDE_CAR: json.dumps({**ENTRY, "event": "improved"}) + "\n"},
    "AB405": {A: with_knowledge(baseM=-1)},
    "AB406": {A: with_knowledge(usedCoreNum=25)},
    "AB407": {A: with_knowledge(baseM=1.5)},
    "AB408": {F: json.dumps([item(sizes=[0, 0], times=[0, 0])])},
    "AB409": {B: unified(KEY, candidate(cost_time=1e-300))},
    "AB411": {G: rows(**{"16": {**ROW, "USE_TMA": "False"}})},
    "AB415": {K: cache("NaN", "2")},
    "AB502": {"renamed.json": line()},
    "AB503": {f"x86-64-v3/unified_bank/{B}": unified()},
    "AB504": {"unified_bank/notes.txt": "milk\n"},
    "AB505": {f"{B}.aoe": unified()},
    "AB506": {SIDE_CAR: json.dumps(ENTRY) + "\n"},
    "AB507": {B: "{}", SIDE_CAR: json.dumps(ENTRY) + "\n"},
    "AB508": {CUBE.name: CUBE.read_bytes()},
    "AB513": {B: unified(), QUARANTINE: json.dumps(BAD)},
    "AB514": {B: unified(), QUARANTINE: json.dumps({**BAD, "op_type": "Softmax"})},
    "AB515": {B: unified(), QUARANTINE: "{"},
    "AB516": {A: line(), A.replace("B2", "B1"): with_knowledge(baseM=2)},
    "AB517": {A: line(), A.replace("B2", "B1"): line() + "\n" + with_info(m=4096)},
    "AB518": {G.replace("NVIDIA_H200", ""): rows()},
    "AB519": dict.fromkeys((G, G.replace("H200", "B200")), rows(**{"2": ROW, "4": ROW, "8": ROW})),
    "AB520": {G: rows(), G.replace("NVIDIA_H", "nvidia-h").replace("N=64", "N=96"): rows()},
    "AB521": {G.replace(".json", f",block_shape=[1,{blank}8].json"): rows() for blank in ("", " ")},
    "AB522": {f"triton_3_4_0/{G.replace('N=64', 'N=96')}": rows(), f"triton_3_5_0/{G}": rows()},
    "AB509": {CUBE.name: CUBE.read_bytes(), CUBE.with_suffix(".bin").name: b"short"},
}
HEALTHY = {
    B: unified(),
    A: line(),
    F: json.dumps([item()]),
    **graph(SUBGRAPH),
    SIDE_CAR: json.dumps(ENTRY) + "\n",
    **runtime("Conv2DV2", json.dumps(whole_record("Conv2DV2"))),
}


def write_tree(root: Path, files: dict[str, str | bytes] | dict[str, str]) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
