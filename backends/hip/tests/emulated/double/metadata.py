"""Reads AMD code objects: kernels, their metadata, symbols."""
import struct


def msgpack(data, at=0):
    """One value and where the next begins; what code object metadata uses."""
    tag = data[at]; at += 1
    def number(size, code):
        return struct.unpack_from(">" + code, data, at)[0], at + size
    def text(n, at): return data[at:at + n].decode(), at + n
    def sequence(n, at):
        out = []
        for _ in range(n):
            value, at = msgpack(data, at); out.append(value)
        return out, at
    def mapping(n, at):
        flat, at = sequence(2 * n, at)
        return dict(zip(flat[::2], flat[1::2])), at
    if tag < 0x80: return tag, at
    if tag < 0x90: return mapping(tag & 15, at)
    if tag < 0xa0: return sequence(tag & 15, at)
    if tag < 0xc0: return text(tag & 31, at)
    if tag == 0xc0: return None, at
    if tag in (0xc2, 0xc3): return tag == 0xc3, at
    if tag in (0xcc, 0xcd, 0xce, 0xcf): return number(*[(1, "B"), (2, "H"), (4, "I"), (8, "Q")][tag - 0xcc])
    if tag in (0xd0, 0xd1, 0xd2, 0xd3): return number(*[(1, "b"), (2, "h"), (4, "i"), (8, "q")][tag - 0xd0])
    if tag in (0xd9, 0xda, 0xdb): n, at = number(*[(1, "B"), (2, "H"), (4, "I")][tag - 0xd9]); return text(n, at)
    if tag in (0xdc, 0xdd): n, at = number(*[(2, "H"), (4, "I")][tag - 0xdc]); return sequence(n, at)
    if tag in (0xde, 0xdf): n, at = number(*[(2, "H"), (4, "I")][tag - 0xde]); return mapping(n, at)
    if tag >= 0xe0: return tag - 256, at
    raise ValueError(f"metadata: tag {tag:#x}")


class Image:
    """An ELF code object as it is in memory, from address 0 on."""

    def __init__(self, elf):
        self.processor = elf[48]  # the low byte of e_flags
        headers, = struct.unpack_from("<Q", elf, 32)
        size, count = struct.unpack_from("<HH", elf, 54)
        self.loads, notes, dynamic = [], None, None
        for i in range(count):
            kind, _, offset, vaddr, _, filesz, memsz, _ = struct.unpack_from("<IIQQQQQQ", elf, headers + i * size)
            if kind == 1: self.loads.append((vaddr, elf[offset:offset + filesz], memsz))
            if kind == 2: dynamic = elf[offset:offset + filesz]
            if kind == 4: notes = elf[offset:offset + filesz]
        self.size = max(vaddr + memsz for vaddr, _, memsz in self.loads)
        tags = dict(struct.iter_unpack("<QQ", dynamic))
        text = self.read(tags[5], tags[10])  # DT_STRTAB, DT_STRSZ
        # DT_SYMTAB stands before the hash and string tables; it does not say how long it is.
        at, end = tags[6], min(v for t, v in tags.items() if t in (4, 5, 0x6ffffef5) and v > tags[6])
        self.symbols = {}
        while at + 24 <= end:
            name, _, _, _, value, bytes_ = struct.unpack("<IBBHQQ", self.read(at, 24))
            self.symbols[text[name:text.index(b"\0", name)].decode()] = (value, bytes_)
            at += 24
        namesz, descsz = struct.unpack_from("<II", notes)
        start = 12 + (namesz + 3) // 4 * 4
        self.kernels = {k[".name"]: k for k in msgpack(notes[start:start + descsz])[0]["amdhsa.kernels"]}

    def read(self, address, size):
        for vaddr, data, memsz in self.loads:
            if vaddr <= address and address + size <= vaddr + memsz:
                return data[address - vaddr:address - vaddr + size].ljust(size, b"\0")
        raise ValueError(f"no segment has {size} bytes at {address:#x}")
