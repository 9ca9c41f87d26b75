"""Fetching from a real server on the loopback address, from files and from a folder of wheels: what was promised, or a clear word.

Cases of the catalogue's part A concern reading, not fetching; H1 (no half file under the final name) is held throughout.
"""

import gzip
import hashlib
import io
import json
import socket
import tarfile
import threading
import zipfile
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import download as script
from lastitem.downloading import ATTEMPTS, fetch_first
from lastitem.errors import InputError

CONTENT = b"user,item,timestamp\n" + b"1,2,3\n" * 300_000
COMPRESSED = gzip.compress(b"1,2,3\n" * 1000, mtime=0)


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Answers by path; ``/flaky`` fails twice, ``/cut`` promises more than it sends."""

    def do_GET(self):
        self.server.asked[self.path] += 1
        if self.path == "/missing":
            return self.send_error(404)
        if self.path == "/broken" or (self.path == "/flaky" and self.server.asked[self.path] <= 2):
            return self.send_error(500)
        if self.path == "/busy" and self.server.asked[self.path] == 1:
            return self.send_error(429)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.end_headers()
            return None
        content = COMPRESSED if self.path.endswith(".gz") else CONTENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) + (100 if self.path == "/cut" else 0)))
        if self.path == "/labelled.gz":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(content)
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.asked = Counter()
        made.address = f"http://127.0.0.1:{made.server_port}"
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def unreachable():
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return f"http://127.0.0.1:{port}/x"


def nothing_left(folder):
    """H1: neither the final name nor anything half-written, hidden or not."""
    return list(folder.iterdir()) == []


def test_a_good_file_arrives_with_its_provenance(server, tmp_path):
    found = fetch_first("d", {"home": {"url": f"{server.address}/good"}}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert found == {"source": "home", "address": f"{server.address}/good", "bytes": len(CONTENT), "sha256": digest(CONTENT)}
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]
    assert server.asked == {"/good": 1}


def test_the_first_source_that_works_is_the_only_one_asked(server, tmp_path):
    expected = {"bytes": len(CONTENT), "sha256": digest(CONTENT)}
    sources = {"first": {"url": f"{server.address}/good", **expected}, "second": {"url": f"{server.address}/other"}}
    assert fetch_first("d", sources, tmp_path / "raw")["source"] == "first"
    assert server.asked == {"/good": 1}


@pytest.mark.parametrize(("key", "wrong"), [("sha256", "0" * 64), ("bytes", 17)])
def test_a_file_that_is_not_the_promised_one_is_refused(server, tmp_path, capsys, key, wrong):
    """The message shows what came and what was expected; the next source is tried."""
    sources = {"first": {"url": f"{server.address}/good", key: wrong}, "second": {"url": f"{server.address}/good.gz"}}
    assert fetch_first("d", sources, tmp_path / "raw")["source"] == "second"
    said = capsys.readouterr().err
    found = {"sha256": digest(CONTENT), "bytes": str(len(CONTENT))}[key]
    assert "'first'" in said
    assert found in said
    assert str(wrong) in said
    assert (tmp_path / "raw").read_bytes() == COMPRESSED


def test_a_wrong_file_alone_is_an_error_and_leaves_nothing(server, tmp_path):
    with pytest.raises(InputError, match=f"sha256 is {digest(CONTENT)}, expected {'0' * 64}"):
        fetch_first("d", {"first": {"url": f"{server.address}/good", "sha256": "0" * 64}}, tmp_path / "raw")
    assert nothing_left(tmp_path)


def test_an_older_file_survives_a_failed_fetch(server, tmp_path):
    (tmp_path / "raw").write_bytes(b"old")
    with pytest.raises(InputError):
        fetch_first("d", {"first": {"url": f"{server.address}/good", "bytes": 1}}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_404_is_final_and_the_next_source_is_tried(server, tmp_path, capsys):
    sources = {"gone": {"url": f"{server.address}/missing"}, "here": {"url": f"{server.address}/good"}}
    assert fetch_first("d", sources, tmp_path / "raw")["source"] == "here"
    assert server.asked["/missing"] == 1
    assert "404" in capsys.readouterr().err


@pytest.mark.parametrize(("path", "asked"), [("/flaky", 3), ("/busy", 2)])
def test_a_passing_fault_is_tried_again(server, tmp_path, path, asked):
    """Status 500 twice and 429 once, then the file."""
    fetch_first("d", {"home": {"url": server.address + path}}, tmp_path / "raw")
    assert server.asked[path] == asked <= ATTEMPTS
    assert (tmp_path / "raw").read_bytes() == CONTENT


def test_a_lasting_fault_is_given_up(server, tmp_path):
    with pytest.raises(InputError, match="HTTP status 500"):
        fetch_first("d", {"home": {"url": f"{server.address}/broken"}}, tmp_path / "raw")
    assert server.asked["/broken"] == ATTEMPTS
    assert nothing_left(tmp_path)


def test_a_transfer_cut_short_is_no_file(server, tmp_path):
    """Fewer bytes than the server announced, with no size or checksum in the config to tell."""
    with pytest.raises(InputError, match="home"):
        fetch_first("d", {"home": {"url": f"{server.address}/cut"}}, tmp_path / "raw")
    assert nothing_left(tmp_path)


def test_an_unreachable_host_is_passed_over(server, tmp_path, unreachable, capsys):
    sources = {"down": {"url": unreachable}, "here": {"url": f"{server.address}/good"}}
    assert fetch_first("d", sources, tmp_path / "raw")["source"] == "here"
    said = capsys.readouterr().err
    assert unreachable in said
    assert "cannot be reached" in said


def test_a_redirection_is_followed(server, tmp_path):
    fetch_first("d", {"home": {"url": f"{server.address}/moved"}}, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == CONTENT


@pytest.mark.parametrize("path", ["/plain.gz", "/labelled.gz"])
def test_a_compressed_file_arrives_as_it_is(server, tmp_path, path):
    """Some servers label a .gz file as a transfer encoding; unpacking it would change its checksum and its name's meaning."""
    source = {"url": server.address + path, "bytes": len(COMPRESSED), "sha256": digest(COMPRESSED)}
    fetch_first("d", {"home": source}, tmp_path / "raw.gz")
    assert (tmp_path / "raw.gz").read_bytes() == COMPRESSED


def test_h5_a_local_file_is_copied(tmp_path):
    """Names with spaces, accents and a semicolon; the original stays."""
    original = tmp_path / "my log; é.csv"
    original.write_bytes(CONTENT)
    found = fetch_first("d", {"mine": {"path": str(original), "bytes": len(CONTENT)}}, tmp_path / "a b" / "é" / "raw")
    assert (tmp_path / "a b" / "é" / "raw").read_bytes() == original.read_bytes() == CONTENT
    assert found["address"] == str(original)


def test_local_faults_are_named(tmp_path):
    """A missing file, and a folder in its place."""
    with pytest.raises(InputError, match=r"nowhere\.csv: No such file"):
        fetch_first("d", {"mine": {"path": str(tmp_path / "nowhere.csv")}}, tmp_path / "raw")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="folder: Is a directory"):
        fetch_first("d", {"mine": {"path": str(tmp_path / "folder")}}, tmp_path / "raw")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_if_all_fail_each_is_named_with_its_reason_and_the_remedy(server, tmp_path, unreachable):
    sources = {
        "one": {"url": f"{server.address}/missing"},
        "two": {"url": unreachable},
        "three": {"path": str(tmp_path / "nowhere.csv")},
        "four": {"url": f"{server.address}/good", "bytes": 5},
    }
    with pytest.raises(InputError) as error:
        fetch_first("ml-100k", sources, tmp_path / "raw")
    text = str(error.value)
    for word in ("ml-100k", "one", "404", "two", "cannot be reached", "three", "No such file", "four", "expected 5"):
        assert word in text
    assert "by hand" in text
    assert "registry: {ml-100k: {sources:" in text
    assert "{by-hand: {path: <where it lies>, form: …}}" in text
    assert nothing_left(tmp_path)


# Packages: pip reads a folder instead of an index, so no network is used.


def wheel(folder, name="tinylog", version="1.0"):
    """The smallest wheel pip accepts, with a log inside."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/log.csv", "user,item,timestamp\n1,2,3\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: not-there==9\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_a_wheel_is_fetched_as_it_is_and_without_its_dependencies(index, tmp_path):
    original = wheel(index).read_bytes()
    source = {"package": "tinylog==1.0", "bytes": len(original), "sha256": digest(original)}
    found = fetch_first("d", {"index": source}, tmp_path / "out" / "raw.whl")
    assert (tmp_path / "out" / "raw.whl").read_bytes() == original
    assert found["address"] == "package tinylog==1.0"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["raw.whl"]


def test_a_package_that_is_not_there_is_passed_over(index, tmp_path, capsys):
    """Another version is no substitute; what pip said is passed on."""
    wheel(index)
    (tmp_path / "log.csv").write_bytes(CONTENT)
    sources = {"index": {"package": "tinylog==2.0"}, "mine": {"path": str(tmp_path / "log.csv")}}
    assert fetch_first("d", sources, tmp_path / "out" / "raw")["source"] == "mine"
    said = capsys.readouterr().err
    assert "tinylog==2.0" in said
    assert "ERROR" in said
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["raw"]


def test_a_wheel_with_another_checksum_is_refused(index, tmp_path):
    wheel(index)
    with pytest.raises(InputError, match="sha256 is"):
        fetch_first("d", {"index": {"package": "tinylog==1.0", "sha256": "0" * 64}}, tmp_path / "out" / "raw")
    assert nothing_left(tmp_path / "out")


def test_a_source_distribution_is_not_run(index, tmp_path):
    """Only wheels are data; to look into a source distribution pip would run its build code before any checksum is seen."""
    mark = tmp_path / "pwned"
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n',
        "evil.py": f"open({str(mark)!r}, 'w').close()\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: tinylog\nVersion: 1.0\n",
    }
    with tarfile.open(index / "tinylog-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"tinylog-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    with pytest.raises(InputError, match=r"tinylog==1\.0"):
        fetch_first("d", {"index": {"package": "tinylog==1.0"}}, tmp_path / "out" / "raw")
    assert not mark.exists()


# The script


def test_the_script_writes_file_and_provenance(server, tmp_path):
    sources = {"gone": {"url": f"{server.address}/missing"}, "home": {"url": f"{server.address}/good", "sha256": digest(CONTENT)}}
    out, provenance = tmp_path / "raw", tmp_path / "provenance.json"
    script.main(["--dataset", "d", "--sources", json.dumps(sources), "--out", str(out), "--provenance", str(provenance)])
    assert out.read_bytes() == CONTENT
    assert json.loads(provenance.read_text(encoding="utf-8")) == {
        "source": "home",
        "address": f"{server.address}/good",
        "bytes": len(CONTENT),
        "sha256": digest(CONTENT),
    }


def test_the_script_leaves_nothing_where_all_sources_fail(tmp_path, unreachable):
    sources = json.dumps({"down": {"url": unreachable}})
    with pytest.raises(InputError, match="no source could be used"):
        script.main(
            ["--dataset", "d", "--sources", sources, "--out", str(tmp_path / "raw"), "--provenance", str(tmp_path / "provenance.json")]
        )
    assert nothing_left(tmp_path)
