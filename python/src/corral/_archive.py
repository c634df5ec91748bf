"""Archives. What is in one of a service comes from a worker, so nothing of it is believed."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from .errors import UnsafeArchive

MAX_ENTRIES = 200_000
MAX_BYTES = 64 * 1024**3
_MAX_DEPTH = 100
_MAX_IN_MEMORY = 1024**3


def unpack(file: BinaryIO, directory: str | os.PathLike[str]) -> list[Path]:
    """
    Unpacks a tar archive into `directory`, which is made if it does not exist; it must be empty. Regular files and directories
    alone are taken, by paths that lead nowhere else. All is unpacked beside it first, so of a refused archive nothing stays.
    """
    target = Path(directory)
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise FileExistsError(f"{target} is not an empty folder: what is downloaded must overwrite nothing")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".corral-", dir=target.parent))
    try:
        permitted = _permitted(made)
        paths = _unpack_all(file, made, permitted)
        if target.exists():
            target.rmdir()
        made.chmod(permitted)
        made.rename(target)
        return [target / path for path in paths]
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def most_for(file: BinaryIO) -> int:
    """How much of a session is written to a file: what it has written is its own choice, and may be endless."""
    try:
        room = os.fstatvfs(file.fileno())
    except (AttributeError, OSError):
        return _MAX_IN_MEMORY
    return room.f_bavail * room.f_frsize // 2


def folder_archive(directory: str | os.PathLike[str]) -> str:
    """The path of a new tar archive of what a folder holds. The caller removes it."""
    with tempfile.NamedTemporaryFile(prefix="corral-", suffix=".tar", delete=False) as file:
        try:
            with tarfile.open(fileobj=file, mode="w") as archive:
                for name in sorted(os.listdir(directory)):
                    archive.add(os.path.join(directory, name), arcname=name)
        except BaseException:
            os.unlink(file.name)
            raise
    return file.name


def _unpack_all(file: BinaryIO, made: Path, permitted: int) -> list[PurePosixPath]:
    taken: dict[str, bool] = {}
    paths: list[PurePosixPath] = []
    total = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                path = _checked(member)
                total += member.size
                if len(taken) >= MAX_ENTRIES or total > MAX_BYTES:
                    raise UnsafeArchive("the archive has too many files, or they are too large")
                key = str(path)
                if member.isreg() and key in taken:
                    raise UnsafeArchive("the archive has two files with one name")
                for parent in path.parents[:-1]:
                    if taken.get(str(parent), True) is False:
                        raise UnsafeArchive("the archive has a file where a folder is")
                    taken.setdefault(str(parent), True)
                if taken.setdefault(key, member.isdir()) != member.isdir():
                    raise UnsafeArchive("the archive has a file where a folder is")
                if not member.isdir():
                    paths.append(path)
                member.name = key
                member.mode = permitted if member.isdir() or member.mode & 0o100 else permitted & 0o644
                _extract(archive, member, made)
    except tarfile.TarError:
        raise UnsafeArchive("the archive cannot be read, or it broke off") from None
    return paths


def _permitted(made: Path) -> int:
    """The mode that the umask leaves of 0755. It is seen on a new folder: to ask for it would set it, for other threads too."""
    probe = made / ".mode"
    probe.mkdir(0o755)
    mode = probe.stat().st_mode & 0o755
    probe.rmdir()
    return mode


def _checked(member: tarfile.TarInfo) -> PurePosixPath:
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise UnsafeArchive("the archive has a link or a special file")
    name = member.name
    parts = name.rstrip("/").split("/")
    if name.startswith("/") or "\0" in name or len(parts) > _MAX_DEPTH or any(part in ("", ".", "..") for part in parts):
        raise UnsafeArchive("the archive has a path that leads elsewhere")
    if any(len(os.fsencode(part)) > 255 for part in parts):
        raise UnsafeArchive("the archive has a name that is too long")
    return PurePosixPath(*parts)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, made: Path) -> None:
    # Python 3.11.4 and newer have the filter; without it the checks above alone decide.
    if hasattr(tarfile, "data_filter"):
        archive.extract(member, made, set_attrs=False, filter="data")
    else:
        archive.extract(member, made, set_attrs=False)
    (made / member.name).chmod(member.mode)
