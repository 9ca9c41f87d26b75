"""What is fetched in these tests, and how it is asked for."""

import gzip
import hashlib
import io
import json
import zipfile

import pytest

from lastitem.data.download.sources import fetch_first
from lastitem.data.download.transfer import ATTEMPTS
from lastitem.errors import InputError
from tests.data.download.misbehaving_server import Answer

CONTENT = b"user,item,timestamp\n" + b"1,2,3\n" * 300_000

CHANGED = b"user,item,timestamp\n" + b"4,5,6\n" * 300_000

COMPRESSED = gzip.compress(b"".join(b"%d,2,3\n" % row for row in range(1000)), mtime=0)

CUT = 700_000

OUTAGE = [Answer(status=503)] * ATTEMPTS

TAG = '"v1"'

DAY = "Wed, 21 Oct 2015 07:28:00 GMT"

PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Log in &amp;\n accept</title></head><body>"
    + b"no data here " * 1000
    + b"</body></html>"
)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def names(folder):
    """What lies in a folder, hidden or not."""
    return sorted(path.name for path in folder.iterdir())


def fetch(source, out):
    return fetch_first("d", {"home": source}, out)


def refusal(sources, out):
    """The error of a download that cannot succeed; whatever lay under the final name
    before lies there after.
    """
    before = out.read_bytes() if out.exists() else None
    with pytest.raises(InputError) as error:
        fetch_first("d", sources, out)
    assert (out.read_bytes() if out.exists() else None) == before
    return str(error.value)


def interrupt(server, path, source, out):
    """Let a download break off for good after ``CUT`` bytes."""
    server.plan(path, Answer(cut_after=CUT), *OUTAGE)
    assert "HTTP status 503" in refusal({"home": source}, out)
    assert partial(out).stat().st_size == CUT


def partial(out):
    return out.with_name(f".{out.name}.download")


def ranges(server, path):
    """Range and If-Range of each request."""
    return [
        (request.headers.get("Range"), request.headers.get("If-Range"))
        for request in server.requests(path)
    ]


def sent(server, path):
    return sum(request.sent for request in server.requests(path))


def archive(method=zipfile.ZIP_DEFLATED):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as file:
        file.writestr("log.csv", CONTENT[:20_000])
        file.writestr("readme.txt", b"about it")
    return packed.getvalue()


def share(api, file="/Beauty.csv"):
    return {"share": {"api": api, "key": "https://disk.example/d/abc", "file": file}}


def says(answer, status=200):
    return Answer(
        status=status,
        body=json.dumps(answer).encode(),
        headers={"Content-Type": "application/json"},
    )


def link(href):
    return says({"href": href, "method": "GET", "templated": False})
