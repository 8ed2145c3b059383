"""Runs the kernels of AMD code objects on the instruction-set emulator of a tinygrad checkout.

Started by hip.c with: socket, memory file, its address and size, the compiled loop.c; STRATA_TINYGRAD is the
checkout. Memory is mapped at the address it has in the other process, so that pointers mean the same in both.
A request is a line, and so is the answer: `ok ...` or what went wrong.
"""
import ctypes, os, socket, struct, sys, time, traceback

from metadata import Image

CHECKOUT = os.environ["STRATA_TINYGRAD"]
sys.path.insert(0, CHECKOUT)
os.environ.setdefault("DEBUG", "0")

DONE, BARRIER, UNKNOWN, OUTSIDE, ENDLESS, PARTIAL, FAULT = range(7)
SGPRS, VGPRS = 260, 512
PC_LO, SCRATCH_STRIDE = 256, 259
EXEC = 126
MOST = 1 << 32  # instructions of one wave


# Cache maintenance, which memory without caches has no need of: the first word's bits under a mask, and bytes.
CACHES = {"rdna3": [(0xe0ac0000, 0xfffc0000, 8), (0xe0b00000, 0xfffc0000, 8)],  # buffer_gl0_inv, buffer_gl1_inv
          "rdna4": [(0xee0ac000, 0xffffc000, 12), (0xee0b0000, 0xffffc000, 12)],  # global_inv, global_wb
          "cdna": [(0xe0a00000, 0xfffc0000, 8), (0xe0a40000, 0xfffc0000, 8), (0xe0fc0000, 0xfffc0000, 8)]}  # wbl2, inv, wbinvl1_vol

# What loop.c does itself, by the bits of the first word under a mask: how, and bytes (0: with a literal or without).
CACHE, GET_PC, MFMA_16, MFMA_32, DIVIDE = range(1, 6)
NATIVE = {
    "rdna3": [(0xbe804700, 0xff80ffff, GET_PC, 4), (0xd6270000, 0xffff8000, DIVIDE, 0)],
    "rdna4": [(0xbe804700, 0xff80ffff, GET_PC, 4), (0xd6270000, 0xffff8000, DIVIDE, 0)],
    "cdna": [(0xbe801c00, 0xff80ffff, GET_PC, 4), (0xd1de0000, 0xffff8000, DIVIDE, 0)],
    "gfx90a": [(0xd3d50000, 0xffff0000, MFMA_16, 8)],
    "gfx942": [(0xd3d70000, 0xffff0000, MFMA_32, 8)],
    "gfx950": [(0xd3d70000, 0xffff0000, MFMA_32, 8)],
}
for arch, list_ in CACHES.items(): NATIVE[arch] += [(value, mask, CACHE, size) for value, mask, size in list_]


class Slot(ctypes.Structure):
    _fields_ = [("run", ctypes.c_void_p), ("count", ctypes.c_uint8), ("barrier", ctypes.c_uint8), ("buffer", ctypes.c_uint8 * 6),
                ("skip", ctypes.c_uint8), ("native", ctypes.c_uint8)]


def family(arch):
    """What the emulator calls the instruction set."""
    number = arch[3:]
    if len(number) == 3 and number >= "90a": return "cdna"
    if number.startswith("11"): return "rdna3"
    if number.startswith("12"): return "rdna4"
    raise ValueError(f"the emulator has no {arch}: rdna3 (gfx11), rdna4 (gfx12) and cdna (gfx90a and newer) only")


# The processor's number in a code object's header.
PROCESSORS = {"gfx906": 0x2f, "gfx908": 0x30, "gfx90a": 0x3f, "gfx942": 0x4c, "gfx950": 0x4f, "gfx1100": 0x41, "gfx1101": 0x46,
              "gfx1102": 0x47, "gfx1103": 0x44, "gfx1150": 0x43, "gfx1151": 0x4a, "gfx1200": 0x48, "gfx1201": 0x4e}


class Module:
    """A code object, loaded at `base`. The emulator reads its code as data."""

    def __init__(self, elf, arch, base, room):
        self.arch, self.name, self.base, self.slots = family(arch), arch, base, {}
        image = Image(elf)
        if PROCESSORS.get(arch) != image.processor: raise ValueError(f"a code object for processor {image.processor:#x} on {arch}")
        if image.size > room: raise ValueError(f"needs {image.size} bytes of memory, has {room}")
        ctypes.memset(base, 0, image.size)
        for vaddr, data, _ in image.loads: ctypes.memmove(base + vaddr, data, len(data))
        self.symbols, self.kernels = image.symbols, image.kernels


class Server:
    def __init__(self, loop, libc):
        self.libc, self.lds = libc, None
        from test.mockgpu.amd import emu
        from tinygrad.renderer.amd import decode_inst
        self.emu = emu
        self.barriers, self.signals = emu._BARRIER_OPS, emu._BARRIER_SOP1_OPS
        self.loop = ctypes.CDLL(loop)
        self.loop.run_wave.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32]
        self.modules, self.next, self.waves = {}, 1, []
        self.compiled = 0

    def load(self, address, size, arch, base, room):
        self.modules[self.next] = Module(ctypes.string_at(int(address), int(size)), arch, int(base), int(room))
        self.next += 1
        return str(self.next - 1)

    def unload(self, module):
        del self.modules[int(module)]
        return ""

    def symbol(self, module, name):
        module = self.modules[int(module)]
        value, size = module.symbols[name]
        return f"{module.base + value} {size}"

    def function(self, module, name):
        k = self.modules[int(module)].kernels[name]
        args = [f"{a['.offset']} {a['.size']}" for a in k[".args"] if not a[".value_kind"].startswith("hidden")]
        return " ".join(map(str, [0, k[".kernarg_segment_size"], k[".group_segment_fixed_size"], k[".max_flat_workgroup_size"]] + args))

    def compile(self, module, slot, pc):
        word, = struct.unpack("<I", ctypes.string_at(pc, 4))
        for value, mask, native, size in NATIVE[module.arch] + NATIVE.get(module.name, []):
            if word & mask != value: continue
            second, = struct.unpack("<I", ctypes.string_at(pc + 4, 4))
            literal = any(second >> shift & 511 == 255 for shift in (0, 9, 18))
            slot.native, slot.skip = native, size or (12 if literal else 8)
            return
        (_, runtime), inst = self.emu._decode_at(pc, module.arch)
        program = self.emu._get_runner(bytes((ctypes.c_char * 16).from_address(pc).raw[:inst.size() + 4]), module.arch)[0]
        buffers = list(program.arg.globals)
        op = getattr(inst, "op", None)
        slot.barrier = type(inst).__name__.startswith("SOPP") and op in self.barriers or type(inst).__name__.startswith("SOP1") and op in self.signals
        slot.count = len(buffers)
        for i, b in enumerate(buffers): slot.buffer[i] = b
        slot.run = ctypes.cast(runtime.fxn, ctypes.c_void_p).value
        self.compiled += 1

    def wave(self, index, width):
        """Registers of the index-th wave of a workgroup, kept from launch to launch."""
        while len(self.waves) <= index:
            self.waves.append(((ctypes.c_uint32 * SGPRS)(), (ctypes.c_uint32 * (VGPRS * 64))(), (ctypes.c_uint32 * (VGPRS * 64))()))
        return self.waves[index]

    def shared_memory(self, size):
        """The address of `size` bytes, before 4 GiB that can be read and not written: the emulator reads for lanes that are
        switched off too, wherever their addresses point. A write past the end is a fault."""
        writable = (size + 4095) // 4096 * 4096 + 4096
        if self.lds is None: self.lds = self.libc.mmap(None, 1 << 33, 1, 0x2 | 0x20 | 0x4000, -1, 0)  # read; private, anonymous, not reserved
        self.libc.mprotect(self.lds, 1 << 20, 1)
        self.libc.mprotect(self.lds, writable, 3)
        return self.lds + writable - (size + 15) // 16 * 16

    def launch(self, module, name, *numbers):
        started, compiled = time.time(), self.compiled
        gx, gy, gz, bx, by, bz, dynamic, kernarg = map(int, numbers)
        module = self.modules[int(module)]
        kernel = module.kernels[name]
        width = kernel[".wavefront_size"]
        for a in kernel[".args"]:
            kind, at = a[".value_kind"], kernarg + a[".offset"]
            values = {"hidden_block_count_x": gx, "hidden_block_count_y": gy, "hidden_block_count_z": gz, "hidden_group_size_x": bx,
                      "hidden_group_size_y": by, "hidden_group_size_z": bz, "hidden_grid_dims": 1 + (gy > 1 or gz > 1) + (gz > 1),
                      "hidden_dynamic_lds_size": dynamic}
            if kind in values: ctypes.memmove(at, values[kind].to_bytes(a[".size"], "little"), a[".size"])
        kd = module.base + module.symbols[name + ".kd"][0]
        _, private, _ = struct.unpack("<III", ctypes.string_at(kd, 12))
        entry = kd + struct.unpack("<q", ctypes.string_at(kd + 16, 8))[0]
        _, _, rsrc2 = struct.unpack("<III", ctypes.string_at(kd + 44, 12))
        properties, = struct.unpack("<H", ctypes.string_at(kd + 56, 2))
        user = []
        for bit, values in ((1, [0] * 4), (2, [0] * 2), (4, [0] * 2), (8, [kernarg & 0xffffffff, kernarg >> 32]), (16, [0] * 2), (32, [0] * 2), (64, [private])):
            if properties & bit: user += values
        # What is preloaded of the arguments (gfx942) is also where they were: the code at the entry loads them then.
        lds_bytes = kernel[".group_segment_fixed_size"] + dynamic
        lds = self.shared_memory(lds_bytes)
        threads = bx * by * bz
        waves = (threads + width - 1) // width
        scratch = [(ctypes.c_char * max(private * width, 4))() for _ in range(waves)]
        size = module.symbols[name][1]
        slots = module.slots.setdefault(name, (Slot * (size // 4 + 1))())
        executed = ctypes.c_uint64(0)
        state = [self.wave(i, width) for i in range(waves)]
        buffers = [(ctypes.c_uint64 * 6)(ctypes.addressof(s), ctypes.addressof(v), 0, lds, ctypes.addressof(scratch[i]),
                                         ctypes.addressof(acc) if width == 64 else ctypes.addressof(v)) for i, (s, v, acc) in enumerate(state)]
        first = [self.start(i, width, threads, bx, by, private) for i in range(waves)]
        order = [(z, y, x) for z in range(gz) for y in range(gy) for x in range(gx)]
        for z, y, x in order:
            for i, (sgpr, vgpr, _) in enumerate(state):
                ctypes.memmove(sgpr, first[i][0], ctypes.sizeof(sgpr))
                ctypes.memmove(vgpr, first[i][1], 4 * width)
                sgpr[PC_LO], sgpr[PC_LO + 1] = entry & 0xffffffff, entry >> 32
                for j, v in enumerate(user): sgpr[j] = v
                if module.arch == "rdna4":
                    sgpr[108 + 7], sgpr[108 + 9] = y | z << 16, x  # ttmp7, ttmp9
                else:
                    at = rsrc2 >> 1 & 31
                    for bit, value in ((7, x), (8, y), (9, z)):
                        if rsrc2 >> bit & 1: sgpr[at] = value; at += 1
            running = list(range(waves))
            while running:
                waiting = []
                for i in running:
                    while True:
                        stop = self.loop.run_wave(slots, entry, size, state[i][0], buffers[i], ctypes.byref(executed), MOST, width)
                        pc = state[i][0][PC_LO] | state[i][0][PC_LO + 1] << 32
                        if stop == UNKNOWN: self.compile(module, slots[(pc - entry) // 4], pc); continue
                        if stop == OUTSIDE: raise RuntimeError(f"{name}: jumps out of its code, to {pc - entry:#x} of {size:#x}")
                        if stop == FAULT: raise RuntimeError(f"{name}: {self.emu._decode_at(pc, module.arch)[1]!r} at {pc - entry:#x} reaches {ctypes.c_uint64.in_dll(self.loop, 'fault_address').value:#x}, where no memory is")
                        if stop == PARTIAL: raise RuntimeError(f"{name}: a matrix instruction with lanes switched off")
                        if stop == ENDLESS: raise RuntimeError(f"{name}: does not end")
                        if stop == BARRIER: waiting.append(i)
                        break
                running = waiting
            # The next workgroup finds what hardware may leave it: anything.
            ctypes.memset(lds, 0xff, lds_bytes)
        if os.environ.get("STRATA_DOUBLE_TRACE"):
            print(f"{name} {gx}x{gy}x{gz} of {threads}: {executed.value} instructions, {self.compiled - compiled} compiled, {time.time() - started:.2f} s", file=sys.stderr)
        return str(executed.value)

    def start(self, index, width, threads, bx, by, private):
        """What the registers of a wave hold at first: constants of the encoding, execution bits, thread ids."""
        lanes = min(width, threads - index * width)
        sgpr, vgpr = (ctypes.c_uint32 * SGPRS)(), (ctypes.c_uint32 * width)()
        for i in range(65): sgpr[128 + i] = i
        for i in range(16): sgpr[193 + i] = -(i + 1) & 0xffffffff
        for i, v in self.emu.F32_INLINE.items(): sgpr[i] = v
        mask = (1 << lanes) - 1
        sgpr[EXEC], sgpr[EXEC + 1] = mask & 0xffffffff, mask >> 32
        sgpr[SCRATCH_STRIDE] = private
        for lane in range(lanes):
            t = index * width + lane
            vgpr[lane] = t // (bx * by) << 20 | t // bx % by << 10 | t % bx
        return sgpr, vgpr


def main():
    connection, memory, address, size = (int(a) for a in sys.argv[1:5])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    # Read and write; shared, not reserved, at this address or not at all.
    if libc.mmap(address, size, 3, 0x1 | 0x4000 | 0x100000, memory, 0) != address: sys.exit("the device memory's address is taken")
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    server = Server(sys.argv[5], libc)
    stream = socket.socket(fileno=connection).makefile("rw", newline="\n")
    for line in stream:
        try:
            request, *words = line.split()
            answer = "ok " + getattr(server, request)(*words)
        except Exception as e:
            if os.environ.get("STRATA_DOUBLE_TRACE"): traceback.print_exc()
            answer = f"{type(e).__name__}: {e}".replace("\n", " | ")[:900]
        stream.write(answer + "\n")
        stream.flush()


if __name__ == "__main__":
    main()
