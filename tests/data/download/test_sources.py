"""Sources in their order: what was fetched before, and packages."""

import io
import tarfile
import zipfile

import pytest

from lastitem.data.download.local_files import KEPT
from lastitem.data.download.sources import fetch_first, keep, take_kept
from tests.data.download.fetching import CHANGED, CONTENT, digest, fetch, names, refusal
from tests.data.download.misbehaving_server import Answer


@pytest.fixture
def fetched(server, tmp_path):
    """A finished download whose outputs Snakemake has deleted: its source, where it
    goes, what it was.
    """
    source, out = {"url": server.put("/log.csv", CONTENT)}, tmp_path / "raw"
    found = fetch(source, out)
    keep(out, found, {"a.csv": "7 bytes"})
    out.unlink()
    server.always("/log.csv", Answer(status=404))
    return source, out, found


@pytest.mark.parametrize(
    "more",
    [{}, {"bytes": len(CONTENT)}, {"sha256": digest(CONTENT)}],
    ids=["as it was", "bytes", "sha256"],
)
def test_what_was_fetched_is_not_fetched_again(fetched, capsys, more):
    """Another source in front, or a checksum that has become known and fits: the same
    file, and nobody is asked.
    """
    source, out, found = fetched
    sources = {"new": {"url": "http://127.0.0.1:1/x"}, "home": source | more}
    assert take_kept("d", sources, out, {"a.csv": "7 bytes"}) == found
    assert out.read_bytes() == CONTENT
    assert "taken from the earlier download" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "local"),
    [
        ({"bytes": 7}, "7 bytes"),
        ({"sha256": digest(CHANGED)}, "7 bytes"),
        ({"url": "http://127.0.0.1:1/other.csv"}, "7 bytes"),
        ({}, "8 bytes"),
    ],
    ids=["bytes", "sha256", "address", "a local file"],
)
def test_what_does_not_fit_any_more_is_not_taken(fetched, change, local):
    source, out, _ = fetched
    assert take_kept("d", {"home": source | change}, out, {"a.csv": local}) is None
    assert not out.exists()


def test_a_kept_file_that_has_changed_is_not_taken(fetched):
    source, out, _ = fetched
    out.with_name(KEPT).write_bytes(CHANGED)
    assert take_kept("d", {"home": source}, out, {"a.csv": "7 bytes"}) is None


def test_a_password_in_an_address_is_used_and_not_shown(server, tmp_path, capsys):
    """Neither in messages nor in what is noted of the source."""
    url = server.put("/log.csv", CONTENT).replace("://", "://me:secret@")
    found = fetch({"url": url}, tmp_path / "raw")
    assert server.requests()[0].headers["Authorization"].startswith("Basic ")
    server.always("/log.csv", Answer(status=404))
    text = refusal({"home": {"url": url}}, tmp_path / "other")
    noted = (tmp_path / "checksums.json").read_text(encoding="utf-8")
    assert "secret" not in f"{found}{capsys.readouterr()}{text}{noted}"


def test_signatures_and_tokens_in_an_address_are_used_and_not_shown(server, tmp_path, capsys):
    """Of one file with two signatures, the second download is held to the first."""
    query = "?table=a&X-Amz-Signature=secret1&token=secret2"
    found = fetch({"url": server.put("/log.csv", CONTENT) + query}, tmp_path / "raw")
    assert found["address"].endswith("/log.csv?table=a&X-Amz-Signature=***&token=***")
    text = refusal(
        {"home": {"url": server.put("/log.csv", CHANGED) + query.replace("secret", "SECRET")}},
        tmp_path / "raw",
    )
    assert "at the first download on" in text
    noted = (tmp_path / "checksums.json").read_text(encoding="utf-8")
    assert "secret" not in f"{found}{capsys.readouterr()}{text}{noted}".lower()


def wheel(folder, name="tinylog", version="1.0"):
    """The smallest wheel pip accepts, with a log inside."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/log.csv", "user,item,timestamp\n1,2,3\n")
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist:"
            " not-there==9\n",
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
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
    found = fetch(
        {"package": "tinylog==1.0", "bytes": len(original), "sha256": digest(original)},
        tmp_path / "out" / "raw.whl",
    )
    assert (tmp_path / "out" / "raw.whl").read_bytes() == original
    assert found["address"] == "package tinylog==1.0"
    assert names(tmp_path / "out") == ["raw.whl"]


def test_a_package_that_is_not_there_is_passed_over(index, server, tmp_path, capsys):
    """Another version is no substitute; what pip said is passed on."""
    wheel(index)
    sources = {
        "index": {"package": "tinylog==2.0"},
        "mirror": {"url": server.put("/log.csv", CONTENT), "sha256": digest(CONTENT)},
    }
    assert fetch_first("d", sources, tmp_path / "out" / "raw")["source"] == "mirror"
    assert (
        "source 'index' failed: package tinylog==2.0: pip download: ERROR"
        in capsys.readouterr().err
    )
    assert names(tmp_path / "out") == ["raw"]


def test_a_wheel_with_another_checksum_is_refused(index, tmp_path):
    wheel(index)
    assert "sha256 is" in refusal(
        {"index": {"package": "tinylog==1.0", "sha256": "0" * 64}}, tmp_path / "out" / "raw"
    )
    assert names(tmp_path / "out") == []


def test_a_source_distribution_is_not_run(index, tmp_path):
    """Only wheels are data; to look into a source distribution pip would run its build
    code before any checksum is seen.
    """
    mark = tmp_path / "pwned"
    files = {
        "pyproject.toml": (
            '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n'
        ),
        "evil.py": f"open({str(mark)!r}, 'w').close()\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: tinylog\nVersion: 1.0\n",
    }
    with tarfile.open(index / "tinylog-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"tinylog-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert "tinylog==1.0" in refusal(
        {"index": {"package": "tinylog==1.0"}}, tmp_path / "out" / "raw"
    )
    assert not mark.exists()
