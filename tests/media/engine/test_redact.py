"""What is shown of ffmpeg's words names no path outside the scratch folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_media.ffmpeg import redact

SCRATCH = Path("/var/scratch/job 7/1")
SOURCE = Path("/home/ana/My Films/holiday (1).mp4")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("file:/home/ana/My Films/holiday (1).mp4: Invalid data", "<source>: Invalid data"),
        ("Error opening /var/scratch/job 7/1/90p-0.mp4.part: no", "Error opening 90p-0.mp4.part: no"),
        ("[error] cannot open '/etc/shadow', giving up", "[error] cannot open '<file>', giving up"),
        ("GET https://user:secret@host/x?token=1 failed", "GET <file> failed"),
        ("file:///root/.ssh/id_rsa", "<file>"),
        ("frame 1/25 of 4:3 at 1/90000 and/or 16:9", "frame 1/25 of 4:3 at 1/90000 and/or 16:9"),
        ("[libx264 @ 0x55] broken", "[libx264 @ 0x55] broken"),
        ("/a", "<file>"),
    ],
)
def test_paths_outside_the_scratch_folder_are_replaced(said: str, shown: str) -> None:
    assert redact(said, scratch=SCRATCH, hidden=[SOURCE]) == shown


def test_a_marker_in_the_text_does_not_smuggle_a_path() -> None:
    assert "/etc" not in redact("\0/etc/passwd", scratch=SCRATCH)
