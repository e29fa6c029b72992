"""A server that answers as Hugging Face does, or as badly as a test asks for."""

import hashlib
import http.server
import json
import re
import socket
import threading
import time

COMMIT = "c" * 40


class HubServer:
    """Repositories: {"user/repo": {path: content}}. Every request is kept in `requests` as (path, headers) with
    names of headers in lower case. `plan(kind, answer, …)`: the next requests of that kind ("api" or "file") are
    answered by these functions of an Exchange, one each; what comes later is answered well."""

    def __init__(self, repositories=None):
        self.repositories = repositories or {}
        self.requests = []
        self.planned = {"api": [], "file": []}
        self.entries = []  # added to every listing
        self.checksums = True
        self.lock = threading.Lock()
        self.released = threading.Event()  # ends what hangs
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.handle_error = lambda request, address: None  # clients may hang up
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()

    def plan(self, kind, *answers):
        self.planned[kind] += answers

    def files_asked_for(self):
        """(file, Range header or None) of each request for a file."""
        return [(path.split("/resolve/")[1].split("/", 1)[1], headers.get("range"))
                for path, headers in self.requests if "/resolve/" in path]

    def listing(self, repository):
        siblings = []
        for path, content in self.repositories[repository].items():
            siblings.append({"rfilename": path, "size": len(content), "blobId": "b" * 40})
            if self.checksums:
                siblings[-1]["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content),
                                       "pointerSize": 134}
        return {"id": repository, "sha": COMMIT, "siblings": siblings + self.entries}

    def handler(self):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(Exchange(hub, self))

            def log_message(self, *arguments):
                pass

        return Handler

    def answer(self, exchange):
        with self.lock:
            self.requests.append((exchange.path, exchange.headers))
            planned = self.planned[exchange.kind]
            answer = planned.pop(0) if planned else Exchange.well
        answer(exchange)


class Exchange:
    def __init__(self, hub, handler):
        self.hub = hub
        self.handler = handler
        self.path = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.kind = "api" if self.path.startswith("/api/") else "file"

    def content(self):
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.*)", self.path)
        return self.hub.repositories.get(match[1], {}).get(match[2]) if match else None

    def first(self):
        """Of the bytes asked for."""
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        return int(match[1]) if match else 0

    def send(self, status, content=b"", length=None, **headers):
        """`length`: what Content-Length says, if it lies; the connection then ends behind the content."""
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.send_header("Content-Length", str(len(content) if length is None else length))
        self.handler.end_headers()
        self.handler.wfile.write(content)
        self.handler.wfile.flush()
        if length is not None:
            self.hang_up()

    def hang_up(self):
        self.handler.close_connection = True
        self.handler.connection.shutdown(socket.SHUT_RDWR)

    def well(self):
        if self.kind == "api":
            repository = self.path.removeprefix("/api/models/").removesuffix("?blobs=true")
            if repository not in self.hub.repositories:
                return self.send(404, b'{"error": "Repository not found"}')
            return self.send(200, json.dumps(self.hub.listing(repository)).encode())
        content = self.content()
        if content is None:
            return self.send(404, b"Entry not found")
        first = self.first()
        etag = '"' + hashlib.md5(content).hexdigest() + '"'
        if first == 0 or self.headers.get("if-range", etag) != etag:
            return self.send(200, content, ETag=etag)
        self.send(206, content[first:], ETag=etag, Content_Range=f"bytes {first}-{len(content) - 1}/{len(content)}")


# Answers to plan.

def status(code, **headers):
    return lambda exchange: exchange.send(code, b"x" * 1000, **headers)


def body(content):
    return lambda exchange: exchange.send(200, content)


def cut_at(n):
    """As it should be, but the connection ends after the first n bytes of the file."""
    def answer(exchange):
        content, first = exchange.content(), exchange.first()
        headers = {"Retry_After": "0", "ETag": '"' + hashlib.md5(content).hexdigest() + '"'}
        if first > 0:
            headers["Content_Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        exchange.send(206 if first > 0 else 200, content[first:n], length=len(content) - first, **headers)
    return answer


def hang_after(n):
    """The first n bytes of the file, and then nothing while the server lives."""
    def answer(exchange):
        content = exchange.content() or b""
        exchange.handler.send_response(200)
        exchange.handler.send_header("Content-Length", str(max(len(content), 1)))
        exchange.handler.send_header("Retry-After", "0")
        exchange.handler.end_headers()
        exchange.handler.wfile.write(content[:n])
        exchange.handler.wfile.flush()
        exchange.hub.released.wait()
        exchange.handler.close_connection = True
    return answer


def drip(seconds, n=8):
    """The file in n pieces, with a pause before each."""
    def answer(exchange):
        content = exchange.content()
        exchange.handler.send_response(200)
        exchange.handler.send_header("Content-Length", str(len(content)))
        exchange.handler.end_headers()
        for i in range(n):
            time.sleep(seconds)
            exchange.handler.wfile.write(content[len(content) * i // n:len(content) * (i + 1) // n])
            exchange.handler.wfile.flush()
    return answer


def redirect(url):
    """To the same path on another server, or to an address."""
    return lambda exchange: exchange.send(302, b"moved", Location=url + exchange.path if url.count("/") == 2 else url)
