"""Pages in a headless browser: a folder is served, and the page sends what it has to say back to the server."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tilewright.tests.deploy.tools import find_program

_SECONDS = 120
_CHROMIUM = find_program(
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"
)
_FIREFOX = find_program("firefox-esr", "firefox")

BROWSERS = {name: program for name, program in (("chromium", _CHROMIUM), ("firefox", _FIREFOX)) if program}
"""Those that are here."""


class _Handler(SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - the base class has it so
        ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm",
        "": "application/octet-stream",
    }  # fmt: skip

    def __init__(self, *arguments: object, posted: queue.Queue[tuple[str, bytes]], directory: str) -> None:
        self.posted = posted
        super().__init__(*arguments, directory=directory)  # type: ignore[arg-type]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self.posted.put((self.path.lstrip("/"), body))

    def log_message(self, *_: object) -> None:
        pass


def said_by_page(browser: str, folder: Path, page: str, last: str) -> dict[str, bytes]:
    """What a page of the folder posts, by the name that it posts it to, until it posts ``last``. ``browser``: one of
    BROWSERS. Raises AssertionError if it does not, with what the browser prints."""
    posted: queue.Queue[tuple[str, bytes]] = queue.Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, posted=posted, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found: dict[str, bytes] = {}
    try:
        with _opened(browser, f"http://127.0.0.1:{server.server_port}/{page}") as printed:
            while last not in found:
                try:
                    name, body = posted.get(timeout=_SECONDS)
                except queue.Empty:
                    raise AssertionError(f"{browser}: no {last} from {page}\n{printed.read_text()}") from None
                found[name] = body
    finally:
        server.shutdown()
        server.server_close()
    return found


@contextmanager
def _opened(browser: str, address: str) -> Iterator[Path]:
    """A browser that shows a page, with a home of its own; the file of what it prints."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        printed = Path(home) / "printed"
        words = {
            "chromium": [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                f"--user-data-dir={home}",
            ],
            "firefox": ["--headless", "--no-remote", "--profile", home],
        }[browser]
        with printed.open("wb") as output:
            process = subprocess.Popen(
                [BROWSERS[browser], *words, address], env={**os.environ, "HOME": home}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        try:
            yield printed
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # it has children
            process.wait()
