"""The script, in this process and in processes of its own: killed or terminated in a
transfer, two at once, a full disk, a terminal or a log to report to, the C locale.
"""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

import download as script
from lastitem import progress
from lastitem.data.download.local_files import KEPT, KEPT_NOTE
from lastitem.data.download.sources import fetch_first
from lastitem.errors import InputError
from tests.data.download.fetching import (
    CHANGED,
    CONTENT,
    CUT,
    TAG,
    digest,
    fetch,
    interrupt,
    link,
    names,
    partial,
    ranges,
    refusal,
    sent,
    share,
)
from tests.data.download.misbehaving_server import Answer

SCRIPT = Path(script.__file__)


def test_a_log_gets_a_line_at_the_end_and_the_licence_once(server, tmp_path, capsys, unreachable):
    sources = {"down": {"url": unreachable}, "home": {"url": server.put("/log.csv", CONTENT)}}
    fetch_first("d", sources, tmp_path / "raw", licence="CC BY 4.0")
    licence, failed, progress, fetched = capsys.readouterr().err.splitlines()
    assert licence == "d: licence: CC BY 4.0"
    assert failed.startswith("d: source 'down' failed")
    assert progress == "d: 1,800,020 of 1,800,020 bytes"
    assert (
        fetched == f"d: fetched from 'home' ({server.address}/log.csv), 1,800,020 bytes, sha256"
        f" {digest(CONTENT)}"
    )


def test_a_log_gets_a_line_now_and_then(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)
    fetch({"url": server.put("/log.csv", CONTENT)}, tmp_path / "raw")
    lines = re.findall(r"^d: ([\d,]+) of 1,800,020 bytes$", capsys.readouterr().err, re.MULTILINE)
    sizes = [int(size.replace(",", "")) for size in lines]
    assert len(sizes) > 2 and sizes == sorted(sizes) and sizes[-1] == len(CONTENT)


def test_no_licence_is_said_where_nothing_is_downloaded(tmp_path, capsys):
    (tmp_path / "log.csv").write_bytes(CONTENT)
    fetch_first(
        "d", {"mine": {"path": str(tmp_path / "log.csv")}}, tmp_path / "raw", licence="CC BY 4.0"
    )
    assert "licence:" not in capsys.readouterr().err


def arguments(sources, out, *more):
    return [
        "--dataset",
        "d",
        "--sources",
        json.dumps(sources),
        "--out",
        str(out),
        "--provenance",
        f"{out}.json",
        *more,
    ]


@contextlib.contextmanager
def start(sources, out, *more, **options):
    command = [sys.executable, str(SCRIPT), *arguments(sources, out, *more)]
    with subprocess.Popen(command, **{"stderr": subprocess.PIPE, **options}) as process:
        try:
            yield process
        except BaseException:
            process.kill()  # else a failing test would wait for it
            raise


def run(sources, out, **options):
    """Exit status, and what was said."""
    with start(sources, out, **options) as process:
        said = process.stderr.read().decode()
    return process.returncode, said


def wait_until(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")


def holds(out, size):
    return lambda: partial(out).exists() and partial(out).stat().st_size == size


def test_the_script_writes_file_and_provenance(server, tmp_path):
    url = server.put("/log.csv", CONTENT)
    sources = {"gone": {"url": f"{server.address}/missing"}, "home": {"url": url}}
    script.main(arguments(sources, tmp_path / "raw", "--licence", "CC0"))
    assert (tmp_path / "raw").read_bytes() == CONTENT
    provenance = json.loads((tmp_path / "raw.json").read_text(encoding="utf-8"))
    assert provenance == {
        "source": "home",
        "address": url,
        "bytes": len(CONTENT),
        "sha256": digest(CONTENT),
    }


def test_the_script_leaves_nothing_where_all_sources_fail(tmp_path, unreachable):
    with pytest.raises(InputError, match="no source could be used"):
        script.main(arguments({"down": {"url": unreachable}}, tmp_path / "raw"))
    assert names(tmp_path) == []


def test_sources_that_are_not_json_are_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        script.main(
            [
                "--dataset",
                "d",
                "--sources",
                "{",
                "--out",
                str(tmp_path / "raw"),
                "--provenance",
                str(tmp_path / "p"),
            ]
        )
    assert "argument --sources: not JSON" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_ended_in_mid_transfer_is_gone_on_with(server, tmp_path, ending):
    """By the next process, from the byte at which it was ended."""
    sources = {"home": {"url": server.put("/log.csv", CONTENT, ETag=TAG)}}
    server.plan("/log.csv", Answer(hold_after=CUT))
    with start(sources, tmp_path / "raw") as process:
        wait_until(holds(tmp_path / "raw", CUT))
        process.send_signal(ending)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143}[ending]
    assert names(tmp_path) == [".raw.download", ".raw.download.json"]

    status, said = run(sources, tmp_path / "raw")
    assert status == 0 and "d: going on from byte 700,000" in said
    assert (tmp_path / "raw").read_bytes() == CONTENT
    assert ranges(server, "/log.csv") == [(None, None), (f"bytes={CUT}-", TAG)]
    assert sent(server, "/log.csv") == len(CONTENT)
    assert names(tmp_path) == [KEPT, KEPT_NOTE, "checksums.json", "origins.json", "raw", "raw.json"]


def test_a_second_process_does_not_interfere(server, tmp_path):
    sources = {"home": {"url": server.put("/log.csv", CONTENT, ETag=TAG)}}
    server.plan("/log.csv", Answer(hold_after=CUT))
    with start(sources, tmp_path / "raw") as process:
        wait_until(holds(tmp_path / "raw", CUT))
        status, said = run(sources, tmp_path / "raw")
        assert status == 1
        assert (
            said
            == f"download.py: error: {tmp_path}/raw: another process is downloading it; wait for"
            " that one to end\n"
        )
        assert partial(tmp_path / "raw").stat().st_size == CUT
        process.kill()
    assert len(server.requests()) == 1


@pytest.mark.parametrize(
    ("asked", "waited"),
    # No time of today: with several workers all must name their tests alike.
    [
        ("7", "7 s"),
        ("3600", "60 s"),
        ("Wed, 21 Oct 2015 07:28:00 GMT", "0.5 s"),
        ("Fri, 01 Jan 2100 00:00:00 GMT", "60 s"),
        ("soon", "0.5 s"),
    ],
)
def test_a_server_says_when_to_ask_again(server, tmp_path, asked, waited):
    """In seconds or by a date; nobody waits for longer than a minute."""
    server.always("/log.csv", Answer(status=429, headers={"Retry-After": asked}))
    url = server.put("/log.csv", CONTENT)
    with start({"home": {"url": url}}, tmp_path / "raw") as process:
        assert (
            process.stderr.readline().decode()
            == f"d: {url}: HTTP status 429 Too Many Requests; trying again in {waited}\n"
        )
        process.terminate()
    assert names(tmp_path) == []


def test_a_terminal_gets_a_bar_that_starts_where_the_download_does(server, tmp_path):
    source = {"url": server.put("/log.csv", CONTENT, ETag=TAG)}
    interrupt(server, "/log.csv", source, tmp_path / "raw")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    with start({"home": source}, tmp_path / "raw", stderr=theirs):
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # Linux's word for the end of a terminal
            while block := os.read(ours, 1 << 16):
                said += block
    os.close(ours)
    assert re.search(r"d:  39%\|", said.decode())
    assert "d: 1,800,020 of 1,800,020 bytes" not in said.decode()


def test_a_full_disk_is_named_and_the_download_goes_on_when_there_is_room(server, tmp_path):
    sources = {"home": {"url": server.put("/log.csv", CONTENT, ETag=TAG)}}
    limited = ["sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", sys.executable, "-B", str(SCRIPT)]
    done = subprocess.run(
        [*limited, *arguments(sources, tmp_path / "raw")], stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert done.returncode == 1
    size = partial(tmp_path / "raw").stat().st_size
    assert (
        f".raw.download: File too large after {size:,} bytes; make room and run again, the download"
        " goes on from there" in done.stderr
    )
    fetch(sources["home"], tmp_path / "raw")
    assert ranges(server, "/log.csv")[-1] == (f"bytes={size}-", TAG)
    assert (tmp_path / "raw").read_bytes() == CONTENT


def test_a_full_disk_is_no_fault_of_a_local_file(small_disk, tmp_path):
    """The next source is not tried, and the remedy is that of a disk."""
    log, out = tmp_path / "log.csv", small_disk(64) / "own" / "raw"
    log.write_bytes(b"x" * 200_000)
    text = refusal({"own": {"path": str(log)}, "home": {"url": "http://127.0.0.1:9/log.csv"}}, out)
    assert text.startswith(
        f"{out}: cannot be written: No space left on device; make room and run again"
    )
    assert names(out.parent) == []


def test_a_folder_that_cannot_be_written_to_is_named(small_disk, tmp_path):
    disk = small_disk(64)
    (disk / "old").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for out in (disk / "old" / "raw", disk / "new" / "raw"):
        text = refusal({"own": {"path": str(tmp_path / "log.csv")}}, out)
        assert text.startswith(
            f"{out}: cannot be written: Read-only file system; run in a folder that you may"
            " write to"
        )


def test_names_do_not_depend_on_the_locale(server, tmp_path):
    """``é`` in the folder, in a local file, in a file put by hand, in a URL and in the
    dataset's licence, under LC_ALL=C.
    """
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    folder = tmp_path / "données; [é]"
    folder.mkdir()
    (folder / "là.csv").write_bytes(CONTENT)
    (folder / "là-bas.csv").write_bytes(CHANGED)
    url = server.put("/là-haut.csv", CONTENT, ETag=TAG)
    for number, (source, address) in enumerate(
        [
            ({"path": str(folder / "là.csv")}, str(folder / "là.csv")),
            ({"url": f"{server.address}/l%C3%A0-bas.csv"}, str(folder / "là-bas.csv")),
            (
                {"url": f"{server.address}/là-haut.csv", "sha256": digest(CONTENT)},
                f"{server.address}/là-haut.csv",
            ),
            (
                share(f"{server.address}/api", "/là-haut.csv"),
                "https://disk.example/d/abc /là-haut.csv",
            ),
        ]
    ):
        server.always("/api/download", link(url))
        out = folder / f"é{number}"
        with start(
            {"home": source}, out, "--licence", "licence privée", env=environment
        ) as process:
            said = process.stderr.read()
        assert process.returncode == 0, said
        assert json.loads(Path(f"{out}.json").read_text(encoding="utf-8"))["address"] == address
        assert out.read_bytes() in (CONTENT, CHANGED)
    status, said = run(
        {"home": {"url": f"{server.address}/parti é.csv"}}, folder / "raw", env=environment
    )
    assert status == 1 and r"name: parti \xe9.csv" in said
