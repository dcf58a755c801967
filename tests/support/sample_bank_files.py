"""Bytes of the sample banks, and small edits of them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "sample_banks" / "ascend" / "Ascend910B2"
RUNTIME_KB = FOLDER / "unified_bank" / "Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json"
UNIFIED = FOLDER / "unified_bank" / "Ascend910B2_24_AiCore_matmul.json"
CUBE = FOLDER / "cube" / "AIC_24_L1_SIZE_512_repository_Ascend910B2_matmul.json"
VECTOR = FOLDER / "vector" / "Ascend910B2_AiCore_24_v001_20260101_000000_000000.json"
GRAPH = FOLDER / "graph" / "ascend910b2_l2cache.json"
GRADIENT = FOLDER / "graph" / "Ascend910B2_gradient_fusion.json"
GPU = ROOT / "sample_banks" / "gpu"
VLLM = GPU / "E=8,N=1024,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
AITER = GPU / "a8w8_tuned_gemm.csv"
TUNABLE_OP = GPU / "tunableop_results0.csv"
AITER_TRITON = GPU / "MI300X-GEMM-A8W8-N=1024-K=8192.json"
KERNEL_TUNER = GPU / "vector_add-kernel_tuner.json"
T4 = GPU / "vector_add-t4-results.json"
AKG = GPU / "repository.json"
FLASHINFER = GPU / "v0_1_trtllm_fused_moe_NVIDIA_B200.py"
METASCHEDULE = GPU / "database_tuning_record.json"
ALL = (
    *(RUNTIME_KB, UNIFIED, CUBE, VECTOR, GRAPH, GRADIENT),
    *(VLLM, AITER, TUNABLE_OP, AITER_TRITON, KERNEL_TUNER, T4, AKG, FLASHINFER),
    METASCHEDULE,
)


def root_of(path: Path) -> Path:
    """Return the sample bank a file is in."""
    return GPU if path.is_relative_to(GPU) else FOLDER.parent
