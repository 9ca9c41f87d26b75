"""Fetching raw logs: several sources in order, size and checksum verified, nothing half-written."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
import tenacity
import urllib3
from tqdm import tqdm

from lastitem.errors import InputError
from lastitem.files import write_aside

CONNECT_SECONDS, READ_SECONDS = 10, 60
ATTEMPTS = 3
_BLOCK = 1 << 20


class SourceError(Exception):
    """One source failed; the next one is tried."""


def fetch_first(dataset: str, sources: Mapping[str, Mapping[str, Any]], out: str | Path) -> dict[str, Any]:
    """Fetch ``out`` from the first source that delivers what it promises.

    Parameters
    ----------
    sources : name → one of ``url`` (http or https), ``package`` (a pinned requirement whose wheel is fetched by pip from
        the configured package index) or ``path`` (a local file), and, where known, ``bytes`` and ``sha256``.

    Returns
    -------
    source, address, bytes, sha256 of the file.

    Raises
    ------
    InputError if all sources fail; it lists each with its reason, and how to place the file by hand.
    """
    failures = []
    for name, source in sources.items():
        try:
            with write_aside(out) as aside:
                address = _fetch(source, aside)
                found = _verify(source, aside)
        except SourceError as error:
            failures.append(f"  {name}: {error}")
            print(f"{dataset}: source {name!r} failed: {error}", file=sys.stderr)
            continue
        print(f"{dataset}: fetched from {name!r} ({address}), {found['bytes']:,} bytes, sha256 {found['sha256']}", file=sys.stderr)
        return {"source": name, "address": address, **found}
    raise InputError(
        f"{dataset}: no source could be used:\n" + "\n".join(failures) + "\n"
        "Fetch the file by hand and add it as one more source in a config file of your own, with the `form` of the source it comes from: "
        f"registry: {{{dataset}: {{sources: {{by-hand: {{path: <where it lies>, form: …}}}}}}}}"
    )


def _fetch(source: Mapping[str, Any], out: Path) -> str:
    if "path" in source:
        try:
            shutil.copyfile(source["path"], out)
        except OSError as error:
            raise SourceError(f"{source['path']}: {error.strerror}") from None
        return str(source["path"])
    if "package" in source:
        _fetch_package(source["package"], out)
        return f"package {source['package']}"
    try:
        _fetch_url(source["url"], out)
    except urllib3.exceptions.HTTPError as error:
        raise SourceError(f"{source['url']}: the transfer broke off ({error})") from None
    except requests.RequestException as error:
        raise SourceError(f"{source['url']}: {_reason(error)}") from None
    return str(source["url"])


def _is_temporary(error: BaseException) -> bool:
    if isinstance(error, urllib3.exceptions.HTTPError):
        return True
    if isinstance(error, requests.HTTPError):
        return error.response.status_code >= 500 or error.response.status_code == 429
    # A host that cannot be reached at all is given up at once, so that the next source gets its turn.
    return isinstance(error, requests.RequestException) and not isinstance(error, requests.ConnectionError)


@tenacity.retry(
    retry=tenacity.retry_if_exception(_is_temporary),
    stop=tenacity.stop_after_attempt(ATTEMPTS),
    wait=tenacity.wait_exponential(multiplier=0.5, max=10),
    reraise=True,
)
def _fetch_url(url: str, out: Path) -> None:
    with requests.get(url, stream=True, headers={"Accept-Encoding": "identity"}, timeout=(CONNECT_SECONDS, READ_SECONDS)) as response:
        response.raise_for_status()
        # Content-Length counts encoded bytes; a file that is itself compressed must arrive as it is.
        size = int(response.headers.get("Content-Length", 0)) or None
        with out.open("wb") as file, tqdm(total=size, unit="B", unit_scale=True, desc="download", disable=None) as progress:
            for block in response.raw.stream(_BLOCK, decode_content=False):
                file.write(block)
                progress.update(len(block))


def _fetch_package(requirement: str, out: Path) -> None:
    # A name of its own, so that the next attempt clears what a killed one left.
    folder = out.parent / ".package"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            folder,
            requirement,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
            raise SourceError(f"pip download {requirement}: {lines[-1] if lines else 'failed'}")
        os.replace(next(folder.iterdir()), out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _verify(source: Mapping[str, Any], path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    found = {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
    for key, value in found.items():
        if source.get(key, value) != value:
            raise SourceError(f"{key} is {value}, expected {source[key]}: the file was changed at its source or damaged on the way")
    return found


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.HTTPError):
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return f"no answer within {CONNECT_SECONDS} s (connection) or {READ_SECONDS} s (data)"
    if isinstance(error, requests.ConnectionError):
        return "the host cannot be reached"
    return str(error)
