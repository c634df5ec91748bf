"""What all chapters share: the bounds of this one file, programs that end in time, and names that stay in their folder."""

import os
import signal
import subprocess
import tempfile
import time

MAX_DEPTH = 4
MAX_FILES = 10_000
MAX_LINE = 200


class NotPossible(Exception):
    """Why nothing can be made of a file. `reason` is one of a few, `words` says it to a person."""

    def __init__(self, reason, words):
        super().__init__(words)
        self.reason = reason
        self.words = words


class Work:
    def __init__(self, asked, file):
        self.out = asked["folder"]
        self.file = file
        self.scratch = os.path.join(self.out, "%scratch")
        self.ocr = asked.get("ocr")
        self.verdict_is_result = asked.get("verdict_is_result") is True
        self.dpi = int(asked.get("dpi") or 150)
        self.type = None
        self.notes = []
        self.passwords = passwords()
        self.bytes_left = int(asked.get("max_bytes") or 256 << 20)
        self.files_left = int(asked.get("max_files") or MAX_FILES)
        seconds = float(asked.get("seconds") or 110)
        self.ends = time.monotonic() + seconds
        # A program that hangs is ended long before a file of many pages would be.
        self.step = max(seconds / 5, min(seconds, 120))
        self._made = 0

    def left(self):
        """Seconds until the time for this file is over."""
        return self.ends - time.monotonic()

    def note(self, words):
        if len(self.notes) < 20:
            self.notes.append(visible(words))

    def take(self, count, files=0):
        """Counts what is unpacked, before it is there."""
        self.bytes_left -= count
        self.files_left -= files
        if self.bytes_left < 0:
            raise NotPossible("bomb", "it unpacks to more bytes than its limit")
        if self.files_left < 0:
            raise NotPossible("bomb", "it has more files inside than its limit")

    def scratch_file(self, suffix=""):
        self._made += 1
        return os.path.join(self.scratch, f"{self._made}{suffix}")

    def scratch_folder(self):
        path = self.scratch_file()
        os.mkdir(path)
        return path

    def path(self, name):
        return os.path.join(self.out, name)

    def tool(self, *args, input=None, output=None, env=None, whole=False):
        """Runs a program for a part of the time of this file, or until all is over. Returns (status, standard output or b"", standard error as text)."""
        left = self.left()
        if left <= 0:
            raise NotPossible("timed out", "the time for it is over")
        with tempfile.TemporaryFile(dir=self.scratch) as errors, (
            open(output, "wb") if output else tempfile.TemporaryFile(dir=self.scratch)
        ) as out:
            child = subprocess.Popen(
                args,
                stdin=open(input, "rb") if input else subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={**os.environ, "HOME": "/tmp", "LC_ALL": "C.UTF-8", "TMPDIR": self.scratch, **(env or {})},
                start_new_session=True,
            )
            try:
                status = child.wait(left if whole else min(left, self.step))
            except subprocess.TimeoutExpired:
                raise NotPossible("timed out", f"{os.path.basename(args[0])} did not end within the time for it") from None
            finally:
                # What it started, and what a broken file made hang, ends with it.
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
            errors.seek(0)
            said = errors.read(64 << 10).decode("utf-8", "replace")
            if output:
                return status, b"", said
            out.seek(0)
            return status, out.read(64 << 20), said


def passwords():
    try:
        with open("/attachments/passwords", encoding="utf-8", errors="surrogateescape") as lines:
            return [line.rstrip("\r\n") for line in lines][:100]
    except FileNotFoundError:
        return []


def visible(text):
    """A text of a stranger in one line: without what moves a cursor or turns the direction of a line."""
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) for c in str(text)[:MAX_LINE])


def safe_name(raw):
    """A name for the disk, for any bytes: different names stay different, none is hidden, leads elsewhere or begins as an option."""
    text = os.fsdecode(raw) if isinstance(raw, bytes) else raw
    made = []
    for at, c in enumerate(text):
        edge = at in (0, len(text) - 1)
        if c in '%/\\:*?"<>|' or not c.isprintable() or (edge and c in " .") or (at == 0 and c in "-~"):
            made.append("".join("%%%02X" % byte for byte in c.encode("utf-8", "surrogateescape")))
        else:
            made.append(c)
    name = "".join(made)
    if len(name.encode("utf-8", "replace")) > 200:
        import hashlib

        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        name = name.encode("utf-8")[:120].decode("utf-8", "ignore").split("%")[0] + "%~" + digest
    return name or "%"


def last_line(said, fallback):
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return visible(lines[-1]) if lines else fallback
