"""Compound files (doc, xls, ppt, msg): the tree of streams inside, read with a bound on every chain."""

import struct

MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
MAX_ENTRIES = 20_000
END = 0xFFFFFFFA


class Broken(Exception):
    pass


class Ole:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read(512 << 20)
        try:
            self._read()
        except (struct.error, IndexError, OverflowError) as why:
            raise Broken(str(why)) from None

    def _read(self):
        head = self.data[:512]
        shift, small_shift = struct.unpack_from("<HH", head, 30)
        if shift not in (9, 12) or small_shift != 6:
            raise Broken("its sectors have an impossible size")
        self.size = 1 << shift
        first_dir, = struct.unpack_from("<I", head, 48)
        self.cutoff, first_small, _, next_fats, _ = struct.unpack_from("<IIIII", head, 56)
        fats = list(struct.unpack_from("<109I", head, 76))
        seen = 0
        while next_fats < END and seen < 1000:
            block = struct.unpack(f"<{self.size // 4}I", self._sector(next_fats))
            fats += block[:-1]
            next_fats = block[-1]
            seen += 1
        self.fat = []
        for at in fats:
            if at < END and (at + 2) * self.size <= len(self.data) + self.size:
                part = self._sector(at)
                self.fat += struct.unpack(f"<{len(part) // 4}I", part[: len(part) & ~3])
        small = self._chain(first_small, self.fat, self._sector, self.size) if first_small < END else b""
        self.small_fat = struct.unpack(f"<{len(small) // 4}I", small[: len(small) & ~3])
        raw = self._chain(first_dir, self.fat, self._sector, self.size)
        self.entries = []
        for at in range(0, min(len(raw), MAX_ENTRIES * 128) - 127, 128):
            length, kind = struct.unpack_from("<HB", raw, at + 64)
            left, right, child = struct.unpack_from("<III", raw, at + 68)
            start, size = struct.unpack_from("<IQ", raw, at + 116)
            name = raw[at : at + max(0, min(length, 64) - 2)].decode("utf-16-le", "replace")
            self.entries.append((name, kind, left, right, child, start, size if shift == 12 else size & 0xFFFFFFFF))
        if not self.entries:
            raise Broken("it has no directory")
        root = self.entries[0]
        self.small = self._chain(root[5], self.fat, self._sector, self.size) if root[5] < END else b""

    def _sector(self, at):
        return self.data[(at + 1) * self.size : (at + 2) * self.size]

    def _chain(self, at, table, read, step, size=None):
        parts = []
        left = len(self.data) // step + 2 if size is None else size // step + 1
        while at < END and left > 0:
            if at >= len(table):
                break
            parts.append(read(at))
            at = table[at]
            left -= 1
        data = b"".join(parts)
        return data if size is None else data[:size]

    def names(self):
        return {name for name, kind, *_ in self.entries if kind in (1, 2)}

    def children(self, entry=0):
        """Pairs of a name and a number: what is directly in a storage."""
        found, waiting, seen = [], [self.entries[entry][4]], set()
        while waiting:
            at = waiting.pop()
            if at >= len(self.entries) or at in seen:
                continue
            seen.add(at)
            name, kind, left, right, *_ = self.entries[at]
            if kind in (1, 2):
                found.append((name, at))
            waiting += [left, right]
        return found

    def streams(self):
        """Each stream with the name of its storage; that of the root is empty."""
        waiting, seen = [("", 0)], {0}
        while waiting:
            parent, storage = waiting.pop()
            for name, at in self.children(storage):
                if at in seen:
                    continue
                seen.add(at)
                if self.is_storage(at):
                    waiting.append((name, at))
                else:
                    yield parent, name, at

    def is_storage(self, entry):
        return self.entries[entry][1] == 1

    def stream(self, entry):
        *_, start, size = self.entries[entry]
        if size > len(self.data):
            raise Broken("a stream is longer than the file")
        if size < self.cutoff:
            return self._chain(start, self.small_fat, lambda at: self.small[at * 64 : at * 64 + 64], 64, size)
        return self._chain(start, self.fat, self._sector, self.size, size)
