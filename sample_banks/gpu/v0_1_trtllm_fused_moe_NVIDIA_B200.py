best_configs = {
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((16, 512), (8, 192, 64), (0,)), ('fp8', 2))": (
        0,
        6,
    ),
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((32, 512), (8, 192, 64), (0,)), ('fp8', 2))": (
        0,
        6,
    ),
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((48, 512), (8, 192, 64), (0,)), ('fp8', 2))": (
        0,
        0,
    ),
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((64, 512), (8, 192, 64), (0,)), ('fp8', 2))": (
        0,
        4,
    ),
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((80, 512), (8, 192, 64), (0,)), ('fp8', 2))": (
        0,
        7,
    ),
    "('trtllm::fused_moe::gemm1', 'MoERunner', ((96, 512), (8, 192, 64), (0,)), ('fp8', 2))": (
        0,
        6,
    ),
}
