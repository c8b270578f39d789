"""The site's search, typed into a page that is served over HTTP, in Chromium."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tools.sources import ROOT

SITE = ROOT / "build/site"
SECONDS = 120
# Types the query into the site's search, which is in a frame, and sends the addresses of the results as soon as there are some.
PROBE = """<iframe id="site" src="/index.html" width="1300" height="900"></iframe><script>
setInterval(() => {
  const page = document.getElementById("site").contentDocument, input = page.querySelector(".md-search__input");
  if (!input) return;
  if (input.value != QUERY) { input.focus(); input.value = QUERY; }
  input.dispatchEvent(new Event("keyup", {bubbles: true}));
  const links = [...page.querySelectorAll(".md-search-result__link")].map(link => link.getAttribute("href"));
  if (links.length) fetch("/found", {method: "POST", body: JSON.stringify(links)});
}, 300);
</script>"""


class Site(SimpleHTTPRequestHandler):
    """Serves the site and the page that types the query; `found` gets the results."""

    def __init__(self, *given: object, query: str, found: queue.Queue[list[str]]) -> None:
        self.query, self.found = query, found
        super().__init__(*given, directory=str(SITE))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path != "/probe":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PROBE.replace("QUERY", json.dumps(self.query)).encode())

    def do_POST(self) -> None:
        self.found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_given: object) -> None:
        """Nothing is printed."""


@contextmanager
def searching(query: str) -> Iterator[tuple[str, queue.Queue[list[str]]]]:
    """The address of the page that types the query, and where its results come."""
    found: queue.Queue[list[str]] = queue.Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, query=query, found=found))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/probe", found
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("statecheck-xfails.toml", "expected-failures.html"),
        ("retry of a failed load", "findings/"),
        ("required check", "conformance.html"),
    ],
)
def test_a_query_that_is_typed_finds_its_page(query: str, page: str, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no chromium on the PATH")
    if not (SITE / "search/search_index.json").is_file():
        pytest.skip("there is no site in build/site: `make site` builds it")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    with searching(query) as (address, found):
        line = [browser, *options, f"--user-data-dir={tmp_path}", address]
        silent = subprocess.DEVNULL
        running = subprocess.Popen(line, stdout=silent, stderr=silent, start_new_session=True)
        try:
            results = found.get(timeout=SECONDS)
        finally:
            # Its renderers are processes of its group.
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert any(page in link for link in results), results
