"""The C function by which a kernel library refuses a CPU it cannot run on."""

from __future__ import annotations

from collections.abc import Sequence

_BUILTIN_NAMES = {
    "sse4_1": "sse4.1",
    "avx512_vnni": "avx512vnni",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
}
"""Names of features, as Linux lists them, which `__builtin_cpu_supports` spells in another way."""
_UNCHECKED = "f16c"
"""GCC before 11 does not know the name; AVX2 machines have it."""
_LEAF_7 = {
    "avx_vnni": (1, "eax", 4),
    "avx512_bf16": (1, "eax", 5),
    "amx_bf16": (0, "edx", 22),
    "avx512_fp16": (0, "edx", 23),
    "amx_tile": (0, "edx", 24),
    "amx_int8": (0, "edx", 25),
}
"""Features asked of `cpuid`, leaf 7, as subleaf, register and bit: compilers in use (GCC 9 to 11,
older Clangs) do not know their names. Source: Intel SDM, volume 2A, CPUID."""
TILES_FEATURE = "amx_tile"
"""The feature whose registers a process has to ask the operating system for."""
_REQUEST_TILES = '  if (aoe_request_tiles()) return "amx_tile (the system keeps it back)";'
_ASK_LEAF_7 = """\
static int aoe_leaf_7(unsigned subleaf, int in_edx, int bit) {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid_count(7, subleaf, &eax, &ebx, &ecx, &edx)) return 0;
  return (in_edx ? edx : eax) >> bit & 1;
}"""


def feature_check(features: Sequence[str], *, x86: bool) -> str:
    """Return C with `aoe_missing_cpu_feature`: the first missing feature's name, or NULL.

    Args:
        features: CPU features, as Linux names them.
        x86: Whether the code is for x86; elsewhere nothing is asked.
    """
    asked = [name for name in features if name != _UNCHECKED] if x86 else []
    helper = ["#include <cpuid.h>", _ASK_LEAF_7] if set(asked) & set(_LEAF_7) else []
    if TILES_FEATURE in asked:
        helper.append("int aoe_request_tiles(void);")
    lines = [*helper, "const char *aoe_missing_cpu_feature(void) {"]
    if x86:
        lines.append("  __builtin_cpu_init();")
    lines += [_refusal(name) for name in asked]
    if TILES_FEATURE in asked:
        lines.append(_REQUEST_TILES)
    return "\n".join([*lines, "  return NULL;", "}"])


def _refusal(name: str) -> str:
    if name in _LEAF_7:
        subleaf, register, bit = _LEAF_7[name]
        asked, said = f"aoe_leaf_7({subleaf}, {int(register == 'edx')}, {bit})", name
    else:
        said = _BUILTIN_NAMES.get(name, name)
        asked = f'__builtin_cpu_supports("{said}")'
    return f'  if (!{asked}) return "{said}";'
