#!/usr/bin/env python3
"""What the compiled AMD kernels are like: a row for each architecture.

    python3 scripts/amd_kernels.py FOLDER [llvm-objdump]

FOLDER is the build script's output, with a folder for each architecture
(target/*/build/strata-kernels-hip-*/out). Sizes, waves, registers and spills come
from the metadata of the code objects, shared memory from it and from the launch
shapes that the images export, instructions from their disassembly.
"""
import importlib.util, pathlib, re, struct, subprocess, sys

here = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("double", here / "../backends/hip/tests/emulated/double/metadata.py")
metadata = importlib.util.module_from_spec(spec)
spec.loader.exec_module(metadata)

INSTRUCTIONS = {"dot4": r"\bv_(dot4c?|dual_dot4\w*)_", "WMMA i8": r"\bv_wmma_i32\w*iu8", "MFMA i8": r"\bv_mfma_i32\w*i8"}


def look(path):
    """Kernels' metadata and the bytes of dynamic shared memory that the image's tiles take."""
    elf = path.read_bytes()
    image = metadata.Image(elf)
    dynamic = 0
    if "strata_mmq_shapes" in image.symbols:
        value, size = image.symbols["strata_mmq_shapes"]
        dynamic = max(struct.unpack(f"<{size // 4}I", image.read(value, size))[3::6])
    return len(elf), list(image.kernels.values()), dynamic


def main():
    folder = pathlib.Path(sys.argv[1])
    objdump = sys.argv[2] if len(sys.argv) > 2 else "llvm-objdump"
    print("| architecture | files | kernels | KiB | wave | VGPRs | SGPRs | spills | scratch | static LDS | dynamic LDS | "
          + " | ".join(INSTRUCTIONS) + " |")
    print("|---" * (11 + len(INSTRUCTIONS)) + "|")
    for arch in sorted((p for p in folder.iterdir() if p.is_dir()), key=lambda p: (len(p.name), p.name)):
        files = sorted(arch.glob("*.co"))
        sizes, kernels, dynamics = zip(*map(look, files))
        kernels = [k for ks in kernels for k in ks]
        most = lambda key: max(k.get(key, 0) for k in kernels)
        total = lambda key: sum(k.get(key, 0) for k in kernels)
        counts = dict.fromkeys(INSTRUCTIONS, 0)
        for file in files:
            text = subprocess.run([objdump, "-d", "--no-show-raw-insn", file], check=True, capture_output=True, text=True).stdout
            for name, pattern in INSTRUCTIONS.items(): counts[name] += len(re.findall(pattern, text))
        waves = sorted({k[".wavefront_size"] for k in kernels})
        row = [arch.name, len(files), len(kernels), sum(sizes) // 1024, "/".join(map(str, waves)), most(".vgpr_count"), most(".sgpr_count"),
               total(".vgpr_spill_count") + total(".sgpr_spill_count"), most(".private_segment_fixed_size"),
               most(".group_segment_fixed_size"), max(dynamics), *counts.values()]
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
