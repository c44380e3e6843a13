"""Serve the built book on localhost until Ctrl-C."""

from __future__ import annotations

import argparse
import errno
import functools
import http.server
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serve files, silently but for what is missing, and never from the browser's cache."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        pass


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; give the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the built HTML")
    parser.add_argument("--port", type=int, default=8000, help="the first to try (default 8000)")
    args = parser.parse_args(argv)
    if not (args.folder / "index.html").is_file():
        print(f"no index.html in {args.folder}: run `make html` first", file=sys.stderr)
        return 1
    with open_server(args.folder, args.port) as server:
        print(
            f"\nThe book is at  http://localhost:{server.server_address[1]}/   (Ctrl-C stops it)", flush=True
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nstopped")
    return 0


def open_server(folder: Path, port: int, tries: int = 100) -> http.server.ThreadingHTTPServer:
    """Open a server for a folder on the first free port from `port` on, else on any free one.

    Port 0 asks the system for a free one.
    """
    handler = functools.partial(Handler, directory=str(folder))
    for candidate in range(port, min(port + tries, 65536)) if port else ():
        try:
            return _Server(("127.0.0.1", candidate), handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    return _Server(("127.0.0.1", 0), handler)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True  # Ctrl-C does not wait for a browser's open connection


if __name__ == "__main__":
    sys.exit(main())
