"""Archives and packed files, with bounds on files and bytes. libarchive reads them; 7z reads what it cannot, such as encrypted ones."""

import contextlib
import ctypes
import locale
import os
import resource
import stat

from work import NotPossible, safe_name, visible

CHUNK = 1 << 18
HEADER_BYTES = 512 << 20
FORMATS = "zip 7zip rar rar5 tar gnutar cpio cab lha iso9660 xar ar warc".split()
FILTERS = ("gzip", "bzip2", "xz", "zstd", "lzma", "compress", "lz4", "lzip")
#: Return values of libarchive.
EOF, OK, RETRY, WARN = 1, 0, -10, -20


def library():
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    lib = ctypes.CDLL("libarchive.so.13")
    for name in ("archive_entry_pathname", "archive_entry_pathname_utf8", "archive_error_string"):
        getattr(lib, name).restype = ctypes.c_char_p
        getattr(lib, name).argtypes = [ctypes.c_void_p]
    lib.archive_read_new.restype = ctypes.c_void_p
    lib.archive_read_data.restype = ctypes.c_ssize_t
    lib.archive_read_data.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    lib.archive_read_next_header.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
    lib.archive_read_open_filename.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    lib.archive_entry_filetype.argtypes = [ctypes.c_void_p]
    lib.archive_entry_size.argtypes = [ctypes.c_void_p]
    lib.archive_entry_size.restype = ctypes.c_int64
    lib.archive_read_add_passphrase.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.archive_read_free.argtypes = [ctypes.c_void_p]
    return lib


@contextlib.contextmanager
def at_most(count):
    """More memory than this is not given meanwhile: a directory that leads back to itself would take all that the container has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as used:
        now = int(used.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + count if hard == resource.RLIM_INFINITY else min(hard, now + count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Archive:
    """Entries one after another. `packed`: one packed file in place of an archive."""

    def __init__(self, path, passwords=(), packed=None):
        self.lib = library()
        self.needs = "no password of the file opens it" if passwords else "it needs a password: --password-file FILE"
        self.handle = ctypes.c_void_p(self.lib.archive_read_new())
        if packed:
            self._support(f"filter_{packed}")
            self._support("format_raw")
        else:
            for name in ("rpm", *FILTERS):
                self._support(f"filter_{name}")
            for name in FORMATS:
                self._support(f"format_{name}")
        for word in passwords:
            if word:
                self.lib.archive_read_add_passphrase(self.handle, os.fsencode(word))
        if self.lib.archive_read_open_filename(self.handle, os.fsencode(path), 1 << 16) < WARN:
            raise NotPossible("damaged", self.error())

    def _support(self, what):
        function = getattr(self.lib, f"archive_read_support_{what}")
        function.argtypes = [ctypes.c_void_p]
        function(self.handle)

    def error(self):
        return visible((self.lib.archive_error_string(self.handle) or b"it cannot be read").decode("utf-8", "replace"))

    def fault(self):
        words = self.error()
        if any(word in words.lower() for word in ("passphrase", "encrypt", "password")):
            return NotPossible("encrypted", self.needs)
        if "memory" in words.lower():
            return NotPossible("bomb", "to read its directory needs more memory than its limit")
        return NotPossible("damaged", words)

    def entries(self):
        """Pairs of a name as bytes and what the entry is: a mode of stat."""
        entry = ctypes.c_void_p()
        while True:
            with at_most(HEADER_BYTES):
                status = self.lib.archive_read_next_header(self.handle, ctypes.byref(entry))
            if status == EOF:
                return
            if status < WARN:
                raise self.fault()
            name = self.lib.archive_entry_pathname(entry) or self.lib.archive_entry_pathname_utf8(entry) or b"unnamed"
            # Entries of `ar` may say no type.
            yield name, self.lib.archive_entry_filetype(entry) or stat.S_IFREG, self.lib.archive_entry_size(entry)

    def data(self):
        buffer = ctypes.create_string_buffer(CHUNK)
        while True:
            count = self.lib.archive_read_data(self.handle, buffer, CHUNK)
            if count == 0:
                return
            if count < 0:
                if count in (RETRY, WARN):
                    continue
                raise self.fault()
            yield buffer.raw[:count]

    def close(self):
        self.lib.archive_read_free(self.handle)


def unpacked(work, path, kind):
    """The one file that is packed in this one, in the scratch folder."""
    made = work.scratch_file()
    with open(made, "wb") as out:
        for piece in python_pieces(path, kind.name) if kind.name in ("gzip", "bzip2", "xz", "lzma") else library_pieces(path, kind.name):
            work.take(len(piece))
            out.write(piece)
    return made


def python_pieces(path, name):
    """Once: libarchive would go on with what a packed file that contains itself unpacks to."""
    import importlib
    import zlib

    module = importlib.import_module({"gzip": "gzip", "bzip2": "bz2"}.get(name, "lzma"))
    try:
        with module.open(path) as file:
            while piece := file.read(CHUNK):
                yield piece
    except (OSError, EOFError, zlib.error, ValueError) as why:
        raise NotPossible("damaged", visible(why)) from None
    except Exception as why:
        if type(why).__name__ != "LZMAError":
            raise
        raise NotPossible("damaged", visible(why)) from None


def library_pieces(path, name):
    archive = Archive(path, packed=name)
    try:
        for _ in archive.entries():
            yield from archive.data()
            return
    finally:
        archive.close()


def unpack(work, path, folder):
    """Writes the regular files of an archive below `folder`; yields pairs of the name inside and the path. Links, devices and odd names lead nowhere."""
    try:
        yield from by_library(work, path, folder)
    except NotPossible as why:
        if why.reason != "encrypted" or not work.passwords:
            raise
        yield from by_7z(work, path, folder, why)


def by_library(work, path, folder):
    archive = Archive(path, work.passwords)
    seen, done, lost = {}, 0, None
    try:
        for name, mode, _ in archive.entries():
            work.take(0, files=1)
            if not stat.S_ISREG(mode):
                if not stat.S_ISDIR(mode):
                    work.note(f"left out {os.fsdecode(name)}: no regular file")
                continue
            target = place_for(folder, name, seen)
            try:
                with open(target, "wb") as out:
                    for piece in archive.data():
                        work.take(len(piece))
                        out.write(piece)
            except NotPossible as why:
                os.unlink(target)
                if why.reason == "bomb":
                    raise
                lost = lost or why
                work.note(f"left out {os.fsdecode(name)}: {why.words}")
                continue
            done += 1
            yield os.fsdecode(name), target
    except NotPossible as why:
        if why.reason == "bomb" or not done:
            raise
        work.note(f"what follows is lost: {why.words}")
    finally:
        archive.close()
    if lost and not done:
        raise lost


def by_7z(work, path, folder, why):
    for word in work.passwords:
        into = work.scratch_folder()
        # 7z counts nothing: what it wrote is counted after each try, and the disk of the container is its bound.
        status, _, _ = work.tool("7z", "x", "-y", "-bd", f"-p{word}", f"-o{into}", path)
        if status != 0:
            continue
        seen = {}
        for parent, _, names in os.walk(into):
            for name in names:
                at = os.path.join(parent, name)
                info = os.lstat(at)
                work.take(info.st_size, files=1)
                if stat.S_ISREG(info.st_mode):
                    inside = os.fsencode(os.path.relpath(at, into))
                    target = place_for(folder, inside, seen)
                    os.rename(at, target)
                    yield os.fsdecode(inside), target
        return
    raise NotPossible("encrypted", "no password of the file opens it") from why


def place_for(folder, name, seen):
    """Where an entry is written: its folders are made, and a second one of a name gets a number."""
    names = [safe_name(one) for one in name.split(b"/") if one not in (b"", b".")][-32:] or ["unnamed"]
    at = folder
    for one in names[:-1]:
        at = os.path.join(at, one)
        if not os.path.isdir(at):
            if os.path.lexists(at):
                at += "%"
            os.makedirs(at, exist_ok=True)
    target = os.path.join(at, names[-1])
    count = seen.get(target, 0)
    seen[target] = count + 1
    while os.path.lexists(target):
        count += 1
        target = os.path.join(at, f"{names[-1]}%{count}")
    if len(os.fsencode(target)) > 3000:
        target = os.path.join(folder, safe_name("x" * 300 + os.fsdecode(name)))
    return target
