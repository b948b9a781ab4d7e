"""Where manual pages are: an installed tree, or a folder of .deb files. -> their sources, one by one."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from longtail.core.errors import DataError
from longtail.core.progress import progress

PLACE = re.compile(r"(?:^|/)man[1-9ln]\w*/(?P<name>[^/]+)\.(?P<section>[1-9ln]\w*)(?:\.gz)?$")  # translations lie one folder deeper
PACKED = ("", ".gz", ".xz", ".bz2")  # what the standard library unpacks
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError, tarfile.TarError, ValueError)


@dataclass(frozen=True)
class PageFile:
    """A page as it lies on disk: its source, or the name of the page that a link leads to."""

    name: str
    section: str
    source: str = ""
    link: str = ""  # path of another page


def page_name(path: str) -> tuple[str, str] | None:
    """
    >>> page_name("usr/share/man/man3/File::Spec.3perl.gz"), page_name("share/doc/man.txt")
    (('File::Spec', '3perl'), None)
    """
    found = PLACE.search(path)
    return (found["name"], found["section"]) if found else None


def installed_pages(root: Path) -> Iterator[PageFile]:
    """The pages of a tree with folders man1, man2, ... ; translations are left out."""
    paths = [path for folder in sorted(root.glob("man*")) if folder.is_dir() for path in sorted(folder.iterdir())]
    with progress(f"Reading {root}", len(paths), "pages") as advance:
        for path in paths:
            advance(1)
            place = page_name(f"{path.parent.name}/{path.name}")
            if place is None:
                continue
            if path.is_symlink():
                target = os.path.realpath(path)
                if page_name(target) not in (None, place):
                    yield PageFile(*place, link=target)
                    continue
            if path.is_file():
                try:
                    data = path.read_bytes()
                except OSError as error:
                    raise DataError(f"{path}: {error.strerror}.") from error
                yield PageFile(*place, source=_source(path.name, data, str(path)))


def packaged_pages(files: list[Path], notes: list[str]) -> Iterator[PageFile]:
    """The pages within .deb files; a note counts those whose compression nothing here can read."""
    unread = 0
    with progress("Reading .deb files", sum(path.stat().st_size for path in files), "bytes") as advance:
        for path in files:
            data = _package_tar(path)
            if data is None:
                unread += 1
            else:
                yield from _tar_pages(path, data)
            advance(path.stat().st_size)
    if unread:
        notes.append(f".deb files left out, packed with zstd where no dpkg-deb is installed to unpack them: {unread:,}.")


def _tar_pages(path: Path, data: bytes) -> Iterator[PageFile]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|*") as tar:  # as a stream: some packages unpack to gigabytes
            for member in tar:
                place = page_name(member.name.removeprefix("./")) if member.name.lstrip("./").startswith("usr/share/man/man") else None
                if place is None:
                    continue
                if member.issym() or member.islnk():
                    folder = f"man{place[1][0]}/" if "/" not in member.linkname else ""
                    yield PageFile(*place, link=folder + member.linkname)
                elif member.isfile() and (file := tar.extractfile(member)):
                    yield PageFile(*place, source=_source(member.name, file.read(), f"{path}:{member.name}"))
    except DAMAGE as error:
        raise DataError(f"{path}: the files within are damaged ({error}). Fetch the package again.") from error


def _package_tar(path: Path) -> bytes | None:
    """The tar archive of a package's files, packed or not; None where it is packed with zstd and dpkg-deb is not there."""
    for name, data in _members(path):
        if not name.startswith("data.tar"):
            continue
        packing = name.removeprefix("data.tar")
        if packing == ".zst":
            return _unpack_with_dpkg(path)
        if packing not in PACKED:
            raise DataError(f"{path}: {name} came; wanted data.tar, plain or packed as {', '.join(filter(None, PACKED))} or .zst.")
        return data
    raise DataError(f"{path}: no data.tar within. Wanted a Debian package, as apt-get download fetches it.")


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The members of an ar archive: 60-byte headers with name and size, each content padded to an even length."""
    with open(path, "rb") as file:
        if file.read(8) != b"!<arch>\n":
            raise DataError(f"{path}: not an ar archive. Wanted a Debian package, as apt-get download fetches it.")
        while header := file.read(60):
            size = header[48:58].strip()
            if len(header) < 60 or header[58:] != b"`\n" or not size.isdigit():
                raise DataError(f"{path}: the archive is damaged or cut short. Fetch the package again.")
            content = file.read(int(size))
            if len(content) < int(size):
                raise DataError(f"{path}: the archive is damaged or cut short. Fetch the package again.")
            yield header[:16].decode(errors="replace").strip().rstrip("/"), content
            file.seek(int(size) % 2, os.SEEK_CUR)


def _unpack_with_dpkg(path: Path) -> bytes | None:
    command = shutil.which("dpkg-deb")
    if command is None:
        return None
    done = subprocess.run([command, "--fsys-tarfile", str(path)], capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DataError(f"{path}: dpkg-deb failed ({said[-1] if said else done.returncode}).")
    return done.stdout


def _source(name: str, data: bytes, where: str) -> str:
    if name.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except DAMAGE as error:
            raise DataError(f"{where}: the gzip data is damaged ({error}). Install or fetch the page again.") from error
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")  # what pages were written in before UTF-8
