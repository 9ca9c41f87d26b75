"""A real HTTP server on the loopback address that serves what it is given, and
misbehaves as it is told.

>>> with serving() as server:
...     url = server.put("/log.csv", b"1,2,3", ETag='"v1"')
...     server.plan("/log.csv", Answer(status=503), Answer(cut_after=2))

``url`` then answers 503, then two bytes and a cut, and from the third request on as a
good server does, Range and If-Range included.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit


@dataclass(frozen=True)
class Answer:
    """How one answer departs from the good one.

    drops : the connection is closed without any answer. status : another than the good
    answer has; then nothing of the file is sent, neither its headers. headers : added
    to the good ones, or replacing them; None leaves one out. body : sent instead of the
    file or the asked part of it. ignores_range : all of the file is sent, whatever was
    asked for. cut_after : the connection is closed after that many bytes of the body.
    hold_after : after that many bytes of the body nothing more comes, and the
    connection stays open, until the server ends.
    """

    drops: bool = False
    status: int | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: bytes | None = None
    ignores_range: bool = False
    cut_after: int | None = None
    hold_after: int | None = None


@dataclass
class Request:
    """What was asked, and how much of a body the server set out to send."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    sent: int = 0


class MisbehavingServer(ThreadingHTTPServer):
    """Files by path, plans of misbehaviour by path, and a record of what was asked;
    made by :func:`serving`.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.ending = threading.Event()
        self.files: dict[str, tuple[bytes, dict[str, str]]] = {}
        self._plans: dict[str, list[Answer]] = defaultdict(list)
        self._lasting: dict[str, Answer] = {}
        self._requests: list[Request] = []

    def put(self, path: str, content: bytes = b"", **headers: str) -> str:
        """Serve ``content`` at ``path``, which may hold any character, and return its
        URL. ``_`` in a header's name stands for ``-``.
        """
        self.files[path] = (
            content,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )
        return self.address + quote(path)

    def plan(self, path: str, *answers: Answer) -> None:
        """Give the next answers at ``path`` in this way, one after the other."""
        self._plans[path] = list(answers)

    def always(self, path: str, answer: Answer) -> None:
        """Give every answer at ``path`` that has no plan in this way."""
        self._lasting[path] = answer

    def requests(self, path: str | None = None) -> list[Request]:
        """What was asked so far, in order, at one path or at all."""
        return [request for request in self._requests if path in (None, request.path)]

    def next_answer(self, request: Request) -> Answer:
        """Note a request and say how to answer it."""
        self._requests.append(request)
        plan = self._plans[request.path]
        return plan.pop(0) if plan else self._lasting.get(request.path, Answer())


@contextmanager
def serving() -> Iterator[MisbehavingServer]:
    """Run a server for the length of the block."""
    with MisbehavingServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.ending.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: MisbehavingServer

    def do_GET(self):
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        request = Request(unquote(parts.path), query, dict(self.headers))
        answer = self.server.next_answer(request)
        if answer.drops:
            return
        status, headers, body = self._good_answer(request, answer.ignores_range)
        if answer.status not in (None, status):
            status, headers, body = answer.status, {}, b""
        if answer.body is not None:
            body = answer.body
        headers = {"Content-Length": str(len(body)), **headers, **answer.headers}
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        stops = [stop for stop in (answer.cut_after, answer.hold_after) if stop is not None]
        body = body[: min(stops)] if stops else body
        # Noted before it is sent, so that a client that has received it all finds it
        # noted.
        request.sent = len(body)
        try:
            self.wfile.write(body)
            if answer.hold_after is not None:
                self.wfile.flush()
                self.server.ending.wait()
        except ConnectionError:
            pass  # The client went away, as some tests want it to.

    def _good_answer(self, request, ignores_range):
        if request.path not in self.server.files:
            return 404, {}, b""
        content, headers = self.server.files[request.path]
        asked = request.headers.get("Range")
        condition = request.headers.get("If-Range")
        if (
            asked is None
            or ignores_range
            or condition not in (None, headers.get("ETag"), headers.get("Last-Modified"))
        ):
            return 200, headers, content
        first = int(asked.removeprefix("bytes=").removesuffix("-"))
        if first >= len(content):
            return 416, {"Content-Range": f"bytes */{len(content)}"}, b""
        return (
            206,
            headers | {"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"},
            content[first:],
        )

    def log_message(self, *_):
        pass
