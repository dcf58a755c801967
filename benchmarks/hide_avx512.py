"""Run a command as on a CPU of AVX2 alone, on one that has more.

    python benchmarks/hide_avx512.py --work DIR -- python benchmarks/peers.py --results FILE ...

Libraries ask CPUID what a CPU has, and XGETBV whether the operating system keeps the registers of
AVX-512 and AMX. The command finds copies of ONNX Runtime and OpenVINO, made once in the folder of
`--work`, whose XGETBV says that it keeps those of AVX and no others, and whose CPUID of the leaf
that holds AVX-VNNI names none; and its `/proc/cpuinfo`, which the engine reads, names no extension
beyond AVX2. Clock, caches and memory remain those of the
machine, so a figure is that of AVX2 code on this CPU, and is to be called so. Other libraries
(NumPy, torch) are as they are.

Needs Linux on x86-64, `objdump`, and the right to make a mount namespace.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGES = ("onnxruntime", "openvino")
_XGETBV = b"\x0f\x01\xd0"
_AVX_STATE = b"\xb0\x07\x90"
"""`mov al, 7; nop`: x87, SSE and AVX state are kept; bits 5 to 7 (AVX-512) of the answer are 0.
Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section 13.3."""
_CPUID = b"\x0f\xa2"
_NONE = b"\x31\xc0"
"""`xor eax, eax`: none of the extensions of leaf 7, subleaf 1, of which AVX-VNNI is one that needs
no state of its own."""
_ASKS_SUBLEAF = {"mov $0x7,%eax", "mov $0x1,%ecx"}
_BEYOND_AVX2 = re.compile(r" (avx512\w*|avx_\w+|avx10\w*|amx\w*|gfni|vaes|vpclmulqdq)\b")
_LOADED = 1
"""`PT_LOAD` of an ELF program header."""


def main() -> int:
    """Make the copies, then become the command."""
    arguments = _arguments()
    work: Path = arguments.work.resolve()
    copies = make_copies(work)
    cpuinfo = work / "cpuinfo"
    cpuinfo.write_text(avx2_alone(Path("/proc/cpuinfo").read_text()))
    paths = [str(copies), *filter(None, [os.environ.get("PYTHONPATH")])]
    mounted = f'mount --bind "{cpuinfo}" /proc/cpuinfo && exec "$@"'
    rights = () if os.geteuid() == 0 else ("--map-root-user",)
    words = ["unshare", *rights, "--mount", "sh", "-c", mounted, "sh", *arguments.command]
    os.execvpe(words[0], words, {**os.environ, "PYTHONPATH": os.pathsep.join(paths)})


def avx2_alone(cpuinfo: str) -> str:
    """Return the text of `/proc/cpuinfo` without the extensions beyond AVX2.

    >>> avx2_alone("flags : fma avx avx2 avx512f avx_vnni gfni sse4a")
    'flags : fma avx avx2 sse4a'
    """
    return _BEYOND_AVX2.sub("", cpuinfo)


def make_copies(work: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """Return a folder with the patched packages, made where it is missing.

    Args:
        work: Folder to make it in.
        packages: Importable; one that is not installed is left out.

    Raises:
        SystemExit: If a package has no XGETBV where one is expected.
    """
    copies = work / "avx2-alone"
    if copies.exists():
        return copies
    partial = work / "avx2-alone.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for package in packages:
        found = importlib.util.find_spec(package)
        if found is None or found.origin is None:
            continue
        folder = Path(found.origin).parent
        shutil.copytree(folder, partial / package)
        for facts in folder.parent.glob(f"{package}-*.dist-info"):
            shutil.copytree(facts, partial / facts.name)
        libraries = sorted((partial / package).rglob("*.so*"))
        patched = sum(_patch(one) for one in libraries)
        if not patched:
            sys.exit(f"{package}: no library of {len(libraries)} asks XGETBV, so nothing is hidden")
        print(f"{package}: {patched} places patched", file=sys.stderr)
    partial.replace(copies)
    return copies


def _patch(library: Path) -> int:
    """Hide what is beyond AVX2 from a library; return at how many places it asked for state."""
    data = bytearray(library.read_bytes())
    states = 0
    for address, asked, answer in _questions(library):
        place = file_offset(data, address)
        if data[place : place + len(asked)] != asked:
            sys.exit(f"{library}: no {asked.hex()} at offset {place:#x}, where objdump has one")
        data[place : place + len(asked)] = answer
        states += asked == _XGETBV
    if states:
        library.write_bytes(data)
    return states


def _questions(library: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield addresses of instructions that ask what a CPU has, and what takes their place."""
    words = ["objdump", "--disassemble", "--no-show-raw-insn", str(library)]
    before: deque[str] = deque(maxlen=len(_ASKS_SUBLEAF))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            where, _, instruction = line.partition(":")
            instruction = " ".join(instruction.split())
            if instruction == "xgetbv":
                yield int(where, 16), _XGETBV, _AVX_STATE
            elif instruction == "cpuid" and set(before) == _ASKS_SUBLEAF:
                yield int(where, 16), _CPUID, _NONE
            before.append(instruction)
    if process.returncode:
        sys.exit(f"{library}: objdump cannot read it")


def file_offset(elf: bytes | bytearray, address: int) -> int:
    """Return the offset in an ELF file for 64 bits of the byte at a virtual address.

    Args:
        elf: The file.
        address: Virtual.

    Raises:
        ValueError: If nothing is loaded there.
    """
    (headers,) = struct.unpack_from("<Q", elf, 0x20)
    size, count = struct.unpack_from("<HH", elf, 0x36)
    for number in range(count):
        kind, _, offset, begin, _, length = struct.unpack_from(
            "<IIQQQQ", elf, headers + number * size
        )
        if kind == _LOADED and begin <= address < begin + length:
            return int(offset + address - begin)
    raise ValueError(f"address {address:#x}: nothing of the file is loaded there")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for the copies, 500 MB")
    parser.add_argument("command", nargs="+", help="what to run, behind --")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
