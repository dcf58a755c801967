"""What `/proc/cpuinfo` says on processors of several makers, masked by hypervisors or not."""

from __future__ import annotations

_V2 = "fpu mmx fxsr sse sse2 ht syscall nx lm pni cx16 ssse3 sse4_1 sse4_2 popcnt lahf_lm"
_V3 = f"{_V2} xsave avx f16c movbe abm fma bmi1 bmi2 avx2"
_V4 = f"{_V3} avx512f avx512dq avx512cd avx512bw avx512vl"
_INTEL = "pclmulqdq aes rdrand rdseed adx clflushopt xsaveopt xsavec"
_AMD = "pclmulqdq aes rdrand rdseed adx clflushopt xsaveopt xsavec sse4a clzero fsgsbase"
_AMD_ZEN3 = f"{_AMD} clwb rdpid pku vaes vpclmulqdq"
_AMD_ZEN4 = (
    f"{_AMD_ZEN3} avx512ifma avx512vbmi avx512_vbmi2 gfni avx512_vnni avx512_bitalg "
    "avx512_vpopcntdq avx512_bf16 flush_l1d"
)
_ICELAKE = (
    f"{_INTEL} clwb avx512_vnni avx512ifma avx512vbmi sha_ni avx512_bitalg avx512_vbmi2 "
    "avx512_vpopcntdq gfni rdpid vaes vpclmulqdq"
)
_SAPPHIRE_RAPIDS = (
    f"{_ICELAKE} avx512_bf16 avx512_fp16 avx_vnni amx_bf16 amx_int8 amx_tile cldemote movdir64b "
    "movdiri serialize waitpkg"
)


def x86_cpuinfo(vendor: str, family: int, model: int, stepping: int, name: str, flags: str) -> str:
    """Return the text of two processors; the second is none of the first one's business."""
    first = (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: {name}\nstepping\t: {stepping}\ncpu MHz\t\t: 2600.000\n"
        f"cache size\t: 1024 KB\nflags\t\t: {flags}\nbugs\t\t: spectre_v1 spectre_v2\n"
        "power management:\n\n"
    )
    return f"{first}processor\t: 1\nvendor_id\t: Other\nmodel\t\t: 1\nflags\t\t: other\n\n"


def arm_cpuinfo(implementer: int, part: int, features: str) -> str:
    """Return the text of one Arm processor."""
    return (
        f"processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: {features}\n"
        f"CPU implementer\t: {implementer:#04x}\nCPU architecture: 8\nCPU variant\t: 0x3\n"
        f"CPU part\t: {part:#05x}\nCPU revision\t: 1\n\n"
    )


def _amd(family: int, model: int, name: str, flags: str) -> str:
    return x86_cpuinfo("AuthenticAMD", family, model, 1, name, flags)


def _xeon(model: int, stepping: int, flags: str) -> str:
    return x86_cpuinfo("GenuineIntel", 6, model, stepping, "Intel(R) Xeon(R) Processor", flags)


ZEN2 = _amd(23, 49, "AMD EPYC 7R32", f"{_V3} {_AMD} clwb rdpid")
ZEN3 = _amd(25, 1, "AMD EPYC 7R13 Processor", f"{_V3} {_AMD_ZEN3}")
ZEN4 = _amd(25, 17, "AMD EPYC 9R14", f"{_V4} {_AMD_ZEN4}")
ZEN4_OF_A_CLOUD = _amd(25, 17, "AMD EPYC 9B14", f"{_V4} {_AMD_ZEN4}".replace(" flush_l1d", ""))
MASKED_ZEN4 = _amd(25, 17, "AMD EPYC 9004", f"{_V3} {_AMD_ZEN3}")
ZEN5 = _amd(26, 2, "AMD EPYC 9R45", f"{_V4} {_AMD_ZEN4} avx_vnni avx512_vp2intersect movdiri")
MASKED_ZEN5 = _amd(26, 2, "AMD EPYC-Turin Processor", _V4)
SKYLAKE_X = _xeon(85, 4, f"{_V4} {_INTEL} clwb")
CASCADE_LAKE = _xeon(85, 7, f"{_V4} {_INTEL} clwb avx512_vnni")
MASKED_CASCADE_LAKE = _xeon(85, 7, f"{_V4} {_INTEL}")
COOPER_LAKE = _xeon(85, 11, f"{_V4} {_INTEL} clwb avx512_vnni avx512_bf16")
ICE_LAKE = _xeon(106, 6, f"{_V4} {_ICELAKE}")
SAPPHIRE_RAPIDS = _xeon(143, 8, f"{_V4} {_SAPPHIRE_RAPIDS}")
MASKED_SAPPHIRE_RAPIDS = _xeon(143, 8, f"{_V3} {_INTEL}")
FALSE_ROCKET_LAKE = _xeon(167, 8, f"{_V4} {_SAPPHIRE_RAPIDS}".replace(" waitpkg", ""))
"""A Sapphire Rapids or later that a hypervisor gives a number of a desktop part."""
KVM_ICE_LAKE = _xeon(134, 0, f"{_V4} {_ICELAKE}")
"""QEMU's `Icelake-Server`, whose model number belongs to no such part."""

_ARM_V8 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid"
NEOVERSE_N1 = arm_cpuinfo(0x41, 0xD0C, f"{_ARM_V8} asimdrdm lrcpc dcpop asimddp ssbs")
NEOVERSE_V1 = arm_cpuinfo(0x41, 0xD40, f"{_ARM_V8} asimdrdm lrcpc dcpop sve svebf16 i8mm bf16")
NEOVERSE_V2 = arm_cpuinfo(0x41, 0xD4F, f"{_ARM_V8} asimdrdm sve sve2 svebf16 i8mm bf16")
MASKED_NEOVERSE_V2 = arm_cpuinfo(0x41, 0xD4F, _ARM_V8)
COBALT = arm_cpuinfo(0x6D, 0xD49, f"{_ARM_V8} asimdrdm sve sve2 svebf16 i8mm bf16")
KUNPENG_920 = arm_cpuinfo(0x48, 0xD01, f"{_ARM_V8} asimdrdm jscvt fcma dcpop asimddp")
AMPERE_ONE = arm_cpuinfo(0xC0, 0xAC3, f"{_ARM_V8} asimdrdm i8mm bf16")
APPLE_M1 = arm_cpuinfo(0x61, 0x022, f"{_ARM_V8} asimdrdm jscvt fcma sha3 sha512")
