"""Write a synthetic bank of any size in any format.

    python benchmarks/make_bank.py --format runtime_kb --records 1000000 --files 20 DIRECTORY

The same arguments give the same bytes. All records are different, valid and without findings. Of a
cube bank only the JSON side is written: its binary twin is CANN's to make, and `validate` misses
it (AB508, once per file).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from aoebank.formats.runtime_kb.format import common_hashes
from aoebank.formats.runtime_kb.operator_schema import operator_schemas
from aoebank.formats.unified.format import workload_key

BATCH = 4096
SPARE = 100_000_000  # workloads from this number on take the place of those that cannot be used


def matmul_workload(number: int) -> dict[str, Any]:
    """Return the key struct of a matrix product; a million different ones and more."""
    struct = operator_schemas()["MatMulV3"].workload
    zero: dict[str, Any] = {"?": False, "f": 0.0}
    values = {field.name: zero.get(field.code, 0) for field in struct.fields}
    batches = {f"batch_{side}{place}": 1 for side in "ab" for place in range(1, 5)}
    shape = {
        "m": 16 * (1 + number % 64),
        "n": 16 * (1 + number // 64 % 256),
        "k": 16 * (1 + number // 16384),
    }
    flags = {f"{name}_align_flag": True for name in "mkn"}
    kinds = {"a_dtype": 1, "b_dtype": 1, "out_dtype": 1, "a_format": 2, "b_format": 2}
    return dict(sorted({**values, **batches, **shape, **flags, **kinds, "out_format": 2}.items()))


def matmul_strategy(rng: Random, cores: int) -> dict[str, int]:
    """Return plausible tiling values."""
    names = operator_schemas()["MatMulV3"].strategy.names
    return {**{name: rng.choice((1, 2, 4, 16, 64, 256)) for name in names}, "usedCoreNum": cores}


def runtime_lines(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield lines of format A, each with the id its reader computes.

    No two have one 32-bit hash (AB310), which three of 200,000 would have by chance.
    """
    struct = operator_schemas()["MatMulV3"].workload
    spare = count(SPARE)
    taken: set[int] = set()
    for start in range(0, len(numbers), BATCH):
        workloads = [matmul_workload(number) for number in numbers[start : start + BATCH]]
        hashes = common_hashes([struct.pack(workload) for workload in workloads], struct.size)
        for workload, id_ in zip(workloads, hashes, strict=True):
            while id_ in taken:
                workload = matmul_workload(next(spare))
                (id_,) = common_hashes([struct.pack(workload)], struct.size)
            taken.add(id_)
            strategy = matmul_strategy(rng, cores)
            yield _compact(
                {
                    "id": id_,
                    "info_dict": workload,
                    "knowledge": strategy,
                    "op": "MatMulV3",
                    "version": 0,
                }
            )


def unified_members(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield members of format B."""
    for number in numbers:
        workload = {"op_type": "matmul", "A_shape": [number + 1, 16], "B_shape": [16, 64]}
        answer = {
            "knowledge": {"block_dim": [cores, 1], "tile": rng.choice((8, 16, 32))},
            "info_dict": workload,
            "cost_time": _microseconds(rng),
        }
        yield f'"{workload_key(workload)}": {json.dumps([answer])}'


def cube_lines(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield lines of format C."""
    for number in numbers:
        shape = {
            "op_type": "matmul",
            "A_shape": [number + 1, 4, 16, 16],
            "B_shape": [4, 4, 16, 16],
            "A_dtype": "float16",
            "kernel_name": f"matmul_{number}",
        }
        tiling = [rng.choice((1, 2, 4, 16)) for _ in range(20)] + [cores]
        yield json.dumps({"shape": shape, "tiling": tiling, "cost_time": _microseconds(rng)})


def vector_members(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield members of format D."""
    for number in numbers:
        feature = json.dumps([[1, [[0, 0]], [cores, number + 1], [], 9, [1]], [12, [], [], 9, []]])
        answer = json.dumps([[0, [251, rng.randrange(32), 254, 0]], rng.randrange(10, 10**6)])
        yield f"{json.dumps(feature)}: {json.dumps(answer)}"


def graph_lines(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield lines of format E, the version line left out."""
    for number in numbers:
        nodes = rng.randrange(1, 6)
        struct = [{"op": "Conv2D", "in": [[cores, number + 1, 7, 7, 16]], "dsize": [2, 0]}] * nodes
        group = {
            "cut": [1] * nodes,
            "fusionType": [True] * nodes,
            "scopeId": [-1 - node for node in range(nodes)],
            "ubPass": {},
        }
        time = rng.randrange(10**5, 10**8)
        yield _compact(
            {
                "feature": {"feature": [{"struct": struct}]},
                "graphID": str(2**40 + number),
                "strategy": {"modelName": "synthetic", "end2EndTime": time, "group": [group]},
            }
        )


def gradient_items(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield items of format F."""
    for number in numbers:
        sizes = [rng.choice((2048, 4096, 9437184)) for _ in range(2 * cores)]
        times = [4657707485836, *(rng.randrange(1, 500) for _ in sizes[1:])]
        value = {"gradientSize": sizes, "gradientTime": times}
        yield _compact({"modelhash": str(2**50 + number), "modelvalue": value})


def vllm_rows(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield rows of a configuration of vLLM."""
    for number in numbers:
        row = {
            "BLOCK_SIZE_M": rng.choice((16, 32, 64, 128)),
            "BLOCK_SIZE_N": rng.choice((32, 64, 128)),
            "BLOCK_SIZE_K": 128,
            "GROUP_SIZE_M": rng.choice((1, 16, 32)),
            "num_warps": rng.choice((4, 8)),
            "num_stages": rng.choice((2, 3, 4)),
        }
        yield json.dumps({str(8 * (number + 1)): row}, indent=4)[6:-2]


def aiter_classes(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield classes of sizes of aiter; no bounds, of which one less would leave a gap."""
    for number in numbers:
        name = f"medium_M{8 * (number + 1)}"
        row = {
            "BLOCK_SIZE_M": rng.choice((16, 32, 64)),
            "BLOCK_SIZE_N": rng.choice((32, 64, 128)),
            "BLOCK_SIZE_K": 128,
            "num_warps": rng.choice((4, 8)),
            "cache_modifier": rng.choice((".cg", None)),
        }
        yield json.dumps({name: row}, indent=2)[4:-2]


def akg_kernels(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield kernels of AKG, each with one shape."""
    for number in numbers:
        tile, extent = rng.choice((16, 32, 64)), 16 * (number + 1)
        attributes = {"bypass": rng.randrange(3), "enable_double_buffer": rng.random() < 0.5}
        dim = f"0 0 {tile} {tile} 0 1 {cores} {cores}"
        shape = {"float16-.float32": {"metadata": {"attrs": attributes}, "dim": dim}}
        name = f"2.Mul12.TensorAdd1{number + 2}.{number + 3}"
        text = json.dumps({name: {f"{extent}_{8 * cores}--": shape}}, indent=4)
        yield text[6:-2]


def flashinfer_members(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield members of FlashInfer's dictionary of tactics."""
    for number in numbers:
        shapes = f"(({16 * (number + 1)}, 512), (8, {8 * cores}, 64), (0,))"
        key = f"('trtllm::fused_moe::gemm1', 'MoERunner', {shapes}, ('fp8', 2))"
        yield f'"{key}": (\n        0,\n        {rng.randrange(8)},\n    )'


def metaschedule_lines(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield tuning records of TVM's MetaSchedule, a workload each."""
    target = {"keys": ["cuda", "gpu"], "kind": "cuda", "arch": "sm_90", "max_num_threads": 1024}
    for number in numbers:
        steps = [
            ["GetSBlock", [], ["T_matmul", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
            ["Split", ["l1", "None", rng.choice((4, 8, 16))], [1, 0], ["l4", "l5"]],
        ]
        seconds = [round(1e-6 * rng.uniform(5, 500), 9) for _ in range(3)]
        sides = ([16 * (number + 1), 64], [64, 8 * cores])
        arguments = [["TENSOR", "float16", shape] for shape in sides]
        yield _compact([number, [[steps, []], seconds, target, arguments]])


def aiter_rows(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield rows of tuned products of aiter."""
    for number in numbers:
        tile, us = rng.choice((16, 32, 64)), round(rng.uniform(20, 500), 4)
        m, n, k = number + 1, 1024, 512
        figures = f"{round(2e-6 * m * n * k / us, 2)},{round(1e-3 * (m + n) * k / us, 2)}"
        kernel = (
            f"gemm_{tile}x64x128_{rng.choice(('intrawave', 'interwave'))}_v{rng.choice((1, 3))}"
        )
        yield f"{cores},{m},{n},{k},{rng.randrange(40)},0,{us},{kernel},{figures},0.0"


def tunable_op_lines(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield results of PyTorch's TunableOp, validators left out."""
    for number in numbers:
        solution = f"Gemm_{rng.choice(('Hipblaslt', 'Rocblas'))}_{rng.randrange(5000)}"
        time = round(rng.uniform(0.02, 0.5), 4)
        yield f"GemmTunableOp_float_NT,nt_{512 * (number + 1)}_4096_64,{solution},{time}"


def kernel_tuner_members(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield results of Kernel Tuner, without what stands around them."""
    for number in numbers:
        block, vector, us = 32 * (number + 1), rng.choice((1, 2, 4)), rng.uniform(20, 500)
        times = [round(us * factor / 1000, 6) for factor in (0.99, 1.0, 1.03)]
        result = {"block_size_x": block, "vector": vector, "time": times[1], "times": times}
        result |= {"compile_time": round(rng.uniform(200, 500), 2), "benchmark_time": 1.25}
        result |= {
            "GB/s": rng.randrange(100, 1400),
            "timestamp": "2026-01-01 00:00:00+00:00",
        }
        yield f"{json.dumps(f'{block},{vector}')}: {json.dumps(result)}"


def t4_items(numbers: range, rng: Random, cores: int) -> Iterator[str]:
    """Yield results in the T4 format, named as its schema has them."""
    for number in numbers:
        time = round(rng.uniform(0.02, 0.5), 6)
        times = {"compilation_time": round(rng.uniform(200, 500), 2), "runtimes": [time, time]}
        item = {
            "timestamp": "2026-01-01 00:00:00+00:00",
            "configuration": {"block_size_x": 32 * (number + 1), "vector": rng.choice((1, 2, 4))},
            "times": times,
            "invalidity": "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": time, "unit": "ms"}],
            "objectives": ["time"],
        }
        yield json.dumps(item)


_A100 = "NVIDIA A100-PCIE-40GB"
_KERNEL_TUNER_HEAD = {
    "device_name": _A100,
    "kernel_name": "vector_add",
    "problem_size": [10000000],
    "tune_params_keys": ["block_size_x", "vector"],
    "tune_params": {"block_size_x": [32, 64, 96, 128, 160, 192], "vector": [1, 2, 4]},
    "objective": "time",
    "kernel_source": "sha256:0f5e",
}
_T4_METADATA = {"timeunit": "milliseconds", "device_name": _A100}
Texts = Callable[[range, Random, int], Iterator[str]]
# what makes the records, folder, file name, and what opens, separates and closes a file
LAYOUTS: dict[str, tuple[Texts, str, str, tuple[str, str, str]]] = {
    "runtime_kb": (
        runtime_lines,
        "unified_bank",
        "{soc}_{cores}_AiCore_MatMulV3_runtime_kb.json",
        ("", "\n", "\n"),
    ),
    "unified": (
        unified_members,
        "unified_bank",
        "{soc}_{cores}_AiCore_matmul.json",
        ("{\n", ",\n", "\n}\n"),
    ),
    "cube": (
        cube_lines,
        "cube",
        "AIC_{cores}_L1_SIZE_512_repository_{soc}_matmul.json",
        ("", "\n", "\n"),
    ),
    "vector": (
        vector_members,
        "vector",
        "{soc}_AiCore_{cores}_v001_20260101_000000_000000.json",
        ("{\n    ", ",\n    ", "\n}"),
    ),
    "graph": (
        graph_lines,
        "graph",
        "{lower}_l2cache.json",
        ('{"version": "2.1"}\n', "\n", "\n"),
    ),
    "gradient": (gradient_items, "graph", "{soc}_gradient_fusion.json", ("[", ",", "]")),
    "vllm": (
        vllm_rows,
        "",
        "E=8,N=1024,device_name={soc},dtype=fp8_w8a8,block_shape=[128,128].json",
        ('{\n    "triton_version": "3.5.0",\n    ', ",\n    ", "\n}\n"),
    ),
    "aiter_triton": (
        aiter_classes,
        "",
        "{soc}-GEMM-A8W8-N=1024-K=8192.json",
        ("{\n  ", ",\n  ", "\n}\n"),
    ),
    "akg": (akg_kernels, "", "{folder}repository.json", ("{\n    ", ",\n    ", "\n}\n")),
    "flashinfer": (
        flashinfer_members,
        "",
        "v0_1_trtllm_fused_moe_{soc}.py",
        ("best_configs = {\n    ", ",\n    ", ",\n}\n"),
    ),
    "metaschedule": (
        metaschedule_lines,
        "",
        "{folder}database_tuning_record.json",
        ("", "\n", "\n"),
    ),
    "tunable_op": (
        tunable_op_lines,
        "",
        "tunableop_results{number}.csv",
        (
            "Validator,PT_VERSION,2.14.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n",
            "\n",
            "\n",
        ),
    ),
    "kernel_tuner": (
        kernel_tuner_members,
        "",
        "vector_add{model}-kernel_tuner.json",
        (json.dumps(_KERNEL_TUNER_HEAD, indent="")[:-2] + ',\n"cache": {\n', ",\n", "}\n}"),
    ),
    "t4": (
        t4_items,
        "",
        "vector_add{model}-t4-results.json",
        (
            '{"results": [',
            ", ",
            f'], "schema_version": "1.0.0", "metadata": {json.dumps(_T4_METADATA)}}}',
        ),
    ),
    "aiter": (
        aiter_rows,
        "",
        "a8w8{model}_tuned_gemm.csv",
        ("cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n", "\n", "\n"),
    ),
}


# of formats that are not CANN's
TARGETS = {"vllm": "NVIDIA_H200", "aiter_triton": "MI300X", "flashinfer": "NVIDIA_B200"}


def make_bank(
    root: Path,
    format_name: str,
    *,
    records: int,
    files: int = 1,
    soc_version: str | None = None,
    cores: int = 24,
    seed: int = 0,
) -> list[Path]:
    """Write a bank and return its files; each file is a soc_version of its own.

    Args:
        soc_version: By default that of the sample banks.
    """
    target = soc_version or TARGETS.get(format_name, "Ascend910B2")
    texts, folder, pattern, (opening, separator, closing) = LAYOUTS[format_name]
    rng = Random(seed)
    written = []
    for number in range(files):
        between = "x" if format_name == "aiter_triton" else "_"
        soc = target if files == 1 else f"{target}{between}{number:04}"
        lower, model = soc.lower().replace("-", "_"), "" if files == 1 else f"_{number:04}"
        parts = {"model": model, "number": number, "folder": f"{number:04}/" if model else ""}
        name = pattern.format(soc=soc, cores=cores, lower=lower, **parts)
        path = root / soc / folder / name if folder else root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = range(records * number // files, records * (number + 1) // files)
        with path.open("w", encoding="ascii") as stream:
            stream.write(opening)
            for place, text in enumerate(texts(part, rng, cores)):
                stream.write(separator + text if place else text)
            stream.write(closing)
        written.append(path)
    return written


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _microseconds(rng: Random) -> float:
    return round(rng.uniform(5, 500), 2)


def main() -> None:
    """Write the bank the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("root", type=Path)
    parser.add_argument("--format", choices=[*LAYOUTS], required=True)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--soc")
    parser.add_argument("--cores", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for path in make_bank(
        given.root,
        given.format,
        records=given.records,
        files=given.files,
        soc_version=given.soc,
        cores=given.cores,
        seed=given.seed,
    ):
        print(path)


if __name__ == "__main__":
    main()
