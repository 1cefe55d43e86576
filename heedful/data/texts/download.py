"""Downloads that can be resumed, and are checked before they count."""

import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heedful.core.errors import InputError
from heedful.core.storage import file_hash

BLOCK = 1 << 16  # bytes
TIMEOUT = 30  # seconds without data


def mirrored(url: str) -> str:
    """Return the address of `url` on the mirror HEEDFUL_MIRROR, which has a folder per host; or `url` without one."""
    mirror = os.environ.get("HEEDFUL_MIRROR")
    if not mirror:
        return url
    parts = urllib.parse.urlsplit(url)
    return f"{mirror.rstrip('/')}/{parts.netloc}{parts.path}"


def download(
    url: str, path: Path, sha256: str | None = None, advance: Callable[[int, int | None], Any] = lambda done, size: None
) -> str:
    """Download `url` to `path` and return its SHA-256. An interrupted download continues where it stopped.

    Args:
        path: it exists only once the file is complete and verified; until then the data is in PATH.part.
        sha256: what the file must have; None: anything.
        advance: called with the bytes so far, and the size if the server names it.

    Raises:
        InputError: the server cannot be reached, the disk is full, or the file has another SHA-256; a file with a wrong
            one is kept as PATH.wrong.
    """
    part = path.with_name(f"{path.name}.part")
    address = mirrored(url)
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise InputError(f"{address} is not an address on the web: it must begin with http:// or https://.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _receive(address, part, advance)
    except urllib.error.HTTPError as error:
        raise InputError(f"{address} cannot be downloaded: {error.code} {error.reason}.") from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(
            f"{address} cannot be reached: {reason}. HEEDFUL_MIRROR may name a mirror. What has arrived is kept; the "
            "same command continues."
        ) from error
    except OSError as error:
        raise InputError(f"{part} cannot be written: {error.strerror}.") from error
    checksum = file_hash(part)
    if sha256 and checksum != sha256:
        wrong = path.with_name(f"{path.name}.wrong")
        part.replace(wrong)
        raise InputError(f"{url} has the SHA-256 {checksum}, not {sha256}: it is kept as {wrong} and not used.")
    part.replace(path)
    return checksum


def _receive(address, part, advance):
    """Append the rest of a file to `part`; raise `ConnectionError` if it ends early."""
    done = part.stat().st_size if part.exists() else 0
    wanted = {"Range": f"bytes={done}-"} if done else {}
    request = urllib.request.Request(address, headers=wanted)  # noqa: S310 - `download` has checked the scheme
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code == 416 and done:  # nothing is left
            return
        raise
    with answer:
        if done and answer.status != 206:  # the server sends the whole file
            done = 0
        length = answer.headers.get("Content-Length")
        size = done + int(length) if length else None
        with part.open("ab" if done else "wb") as file:
            while block := answer.read(BLOCK):
                file.write(block)
                done += len(block)
                advance(done, size)
    if size is not None and done < size:
        raise ConnectionError(f"the connection ended after {done:,} of {size:,} bytes")
