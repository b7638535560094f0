"""Running ffmpeg: progress, the ways it ends, and that nothing outlives it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast_media.errors import MediaError, Stopped
from holdfast_media.ffmpeg import Progress, run, time_limit
from holdfast_media.ffmpeg.limits import memory_limit
from holdfast_media.ffmpeg.progress import ProgressReader
from tests.media.engine.fake_ffmpeg import fake

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
TO_NOWHERE = ("-f", "null", "-")
ENDLESS = ("-re", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=25", *TO_NOWHERE)
REPORT = "frame={}\nfps=1\ntotal_size=10\nout_time_us={}\nspeed=1x\nprogress={}\n"


def lavfi(seconds: float) -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"testsrc2=s=64x64:r=25:d={seconds}")


# -- progress --------------------------------------------------------------------------------------------------------------


def test_progress_rises_to_one_with_frames_and_speed() -> None:
    told: list[Progress] = []
    result = run([*lavfi(2), *TO_NOWHERE], duration=2.0, on_progress=told.append)
    assert result.frames == 50
    assert told[-1].fraction == 1.0
    assert told[-1].percent == 100.0
    assert told[-1].frames == 50
    assert told[-1].speed is not None
    assert told[-1].remaining == 0.0


def test_the_share_never_falls_and_time_left_follows_from_it() -> None:
    reader = ProgressReader(10.0, offset=60.0, begun=100.0)
    text = REPORT.format(25, 61_000_000, "continue") + REPORT.format(75, 63_000_000, "continue")
    text += REPORT.format(70, 62_000_000, "continue") + REPORT.format(0, "N/A", "continue")
    told = list(reader.feed(text.encode(), now=106.0))
    assert [progress.fraction for progress in told] == pytest.approx([0.1, 0.3, 0.3, 0.3])
    assert told[1].remaining == pytest.approx(14.0)
    assert told[1].speed == pytest.approx(0.5)


def test_reports_are_put_together_from_pieces() -> None:
    reader = ProgressReader(1.0, begun=0.0)
    whole = (REPORT.format(5, 500_000, "continue") + REPORT.format(9, 900_000, "end")).encode()
    told = [progress for at in range(len(whole)) for progress in reader.feed(whole[at : at + 1], now=1.0)]
    assert [(progress.frames, progress.fraction) for progress in told] == [(5, 0.5), (9, 1.0)]


def test_an_encode_may_take_twice_its_length_within_bounds() -> None:
    assert time_limit(1000, 1.5) == 3000
    assert time_limit(10, 3.5) == 300
    assert time_limit(100_000) == 14_400


# -- ways to end -----------------------------------------------------------------------------------------------------------


def failure(ffmpeg: Path | None = None, *arguments: str, **options: float) -> MediaError:
    with pytest.raises(MediaError) as caught:
        run(arguments or TO_NOWHERE, ffmpeg=ffmpeg, **options)  # type: ignore[arg-type]
    return caught.value


def test_an_encode_that_stands_still_is_killed(tmp_path: Path) -> None:
    """It goes on reporting, and reports the same."""
    text = REPORT.format(7, 100, "continue")
    program = fake(tmp_path, f"while True:\n    print({text!r}, flush=True)\n    time.sleep(0.05)")
    begun = time.monotonic()
    assert failure(program, stall_after=0.6, timeout=30).code == "ENCODE_STALLED"
    assert time.monotonic() - begun < 15


def test_an_encode_that_moves_is_not_stalled(tmp_path: Path) -> None:
    code = f"for n in range(12):\n    print({REPORT!r}.format(n, n, 'continue'), flush=True)\n    time.sleep(0.1)"
    assert run(TO_NOWHERE, ffmpeg=fake(tmp_path, code), stall_after=0.8).frames == 11


def test_an_encode_that_is_late_is_killed(tmp_path: Path) -> None:
    assert failure(fake(tmp_path, "time.sleep(60)"), timeout=0.5).code == "ENCODE_TIMEOUT"


def test_an_encode_that_eats_memory_is_killed_before_the_worker_lacks_it(tmp_path: Path) -> None:
    """Only what is really used counts: threads reserve far more than that."""
    code = "import mmap\nreserved, kept = mmap.mmap(-1, 1 << 33), []\n"
    code += "for _ in range(600):\n    kept.append(bytearray(os.urandom(1 << 20)))"
    begun = time.monotonic()
    error = failure(fake(tmp_path, f"{code}\ntime.sleep(60)"), memory=200 << 20, timeout=30)
    assert error.code == "INPUT_TOO_LARGE"
    assert "0.2 GiB of memory" in error.message
    assert "--no-together" in error.message
    assert time.monotonic() - begun < 15
    run(TO_NOWHERE, ffmpeg=fake(tmp_path, code.replace("600", "20")), memory=400 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="how a kernel chooses is Linux's own")
def test_a_kernel_short_of_memory_takes_the_encode_and_not_the_worker(tmp_path: Path) -> None:
    said = tmp_path / "said"
    run(TO_NOWHERE, ffmpeg=fake(tmp_path, f"open({str(said)!r}, 'w').write(open('/proc/self/oom_score_adj').read())"))
    assert int(said.read_text()) >= 500


def test_the_limit_on_memory_is_far_above_what_an_honest_encode_takes() -> None:
    """Measured with x264's preset medium, all at once; with veryslow and two threads it was 6.0 GiB, and not 3.1."""
    ladder = [3840 * 2160, 2560 * 1440, 1920 * 1080, 1280 * 720]
    fours, eights = 3840 * 2160 * 1.5, 7680 * 4320 * 1.5
    for frame, threads, taken in ((fours, 2, 3.1), (fours, 32, 6.7), (eights, 2, 3.2), (eights, 16, 4.6)):
        assert memory_limit(frame, ladder, threads=threads) > 2.5 * taken * (1 << 30)
    assert memory_limit(fours, ladder, threads=2) > 1.7 * 6.0 * (1 << 30)
    assert memory_limit(640 * 360 * 1.5, [640 * 360], threads=2) < 3 << 30


def test_an_encode_ends_soon_after_it_is_told_to() -> None:
    begun = time.monotonic()
    with pytest.raises(Stopped) as caught:
        run(ENDLESS, stop=lambda: "shutdown" if time.monotonic() > begun + 0.4 else None)
    assert caught.value.reason == "shutdown"
    assert time.monotonic() - begun < 10


def test_the_end_of_what_it_said_is_kept_with_the_error(tmp_path: Path) -> None:
    """More than a pipe holds: who does not read it stands still for ever."""
    code = (
        "sys.stderr.write('x' * 100 + '\\n')\n" * 2
        + "for n in range(20000): sys.stderr.write(f'[error] line {n} of /home/ana\\n')\n"
    )
    error = failure(fake(tmp_path, code + "sys.exit(3)"), timeout=60)
    assert error.code == "ENCODE_FAILED"
    assert "line 19999 of <file>" in error.detail
    assert "/home" not in error.detail + error.message
    assert len(error.detail) < 9000


@pytest.mark.parametrize(
    ("then", "options"),
    [
        ("time.sleep(60)", {"stall_after": 0.4, "lead": 60.0}),
        ("time.sleep(60)", {"timeout": 3.0}),
        ("kept = bytes(400 << 20)\nkept = kept.replace(b'\\0', b'1')\ntime.sleep(60)", {"memory": 200 << 20}),
    ],
)
def test_so_is_that_of_one_that_was_killed(tmp_path: Path, then: str, options: dict[str, float]) -> None:
    said = f"sys.stderr.write('[warning] waiting for /home/ana\\n')\nprint({REPORT.format(1, 1, 'continue')!r}, flush=True)"
    error = failure(fake(tmp_path, f"{said}\n{then}"), **options)
    assert error.code in {"ENCODE_STALLED", "ENCODE_TIMEOUT", "INPUT_TOO_LARGE"}
    assert error.detail == "[warning] waiting for <file>"


def test_a_full_disk_is_told_apart() -> None:
    error = failure(None, *lavfi(1), "-c:v", "rawvideo", "-f", "rawvideo", "-y", "/dev/full")
    assert (error.code, error.retryable) == ("DISK_FULL", True)


def test_a_killed_encode_is_retryable(tmp_path: Path) -> None:
    error = failure(fake(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert (error.code, error.retryable) == ("ENCODE_KILLED", True)


def test_a_missing_encoder_is_told_apart() -> None:
    assert failure(None, *lavfi(1), "-c:v", "no_such_encoder", *TO_NOWHERE).code == "FFMPEG_UNSUITABLE"


def test_one_that_reads_a_long_way_before_it_writes_is_not_stalled(tmp_path: Path) -> None:
    """Only before the first frame: after that it has no reason to be silent."""
    code = "time.sleep(1.2)\nprint('frame=1\\nout_time_us=1\\nprogress=continue', flush=True)\n"
    late = fake(tmp_path, code)
    assert failure(late, stall_after=0.4, timeout=60).code == "ENCODE_STALLED"
    assert run(TO_NOWHERE, ffmpeg=late, stall_after=0.4, lead=30.0).frames == 1
    late.write_text(late.read_text() + "time.sleep(60)\n")
    assert failure(late, stall_after=0.4, lead=30.0, timeout=30).code == "ENCODE_STALLED"


@pytest.mark.parametrize(
    ("speed", "remaining", "said"),
    [(None, None, "48 %"), (2.14, 13.6, "48 %, 2.1x, 14 s left"), (0.5, 125.0, "48 %, 0.5x, 2:05 min left")],
)
def test_progress_says_share_speed_and_time_left(speed: float | None, remaining: float | None, said: str) -> None:
    assert str(Progress(fraction=0.48, seconds=1, frames=1, speed=speed, remaining=remaining)) == said


def test_what_the_callback_raises_ends_the_encode() -> None:
    def fail(_: Progress) -> None:
        raise ZeroDivisionError

    before = set(children(os.getpid()))
    with pytest.raises(ZeroDivisionError):
        run(ENDLESS, on_progress=fail)
    assert set(children(os.getpid())) <= before


# -- nothing outlives it ---------------------------------------------------------------------------------------------------


def children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def ended_within(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def test_children_of_the_encode_are_killed_with_it(tmp_path: Path) -> None:
    """The program starts another one, and both hold the pipes open."""
    code = f"if os.fork() == 0:\n    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    program = fake(tmp_path, code)
    with pytest.raises(Stopped):
        run(TO_NOWHERE, ffmpeg=program, stop=lambda: "done" if (tmp_path / "pid").exists() else None)
    pid = int((tmp_path / "pid").read_text() or "0")
    assert gone(pid)


def gone(pid: int) -> bool:
    """A killed process stays in the list until its new parent has looked; its state says that it is dead."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        os.sched_yield()
    return False


def test_ffmpeg_ends_when_its_worker_is_killed() -> None:
    code = f"from holdfast_media.ffmpeg import run\nrun({ENDLESS!r}, on_progress=lambda _: print('going', flush=True))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as worker:
        assert worker.stdout is not None
        try:
            assert worker.stdout.readline() == b"going\n"
            (encode,) = children(worker.pid)
            assert b"-progress" in Path(f"/proc/{encode}/cmdline").read_bytes()
            end = os.pidfd_open(encode)
        finally:
            worker.send_signal(signal.SIGKILL)
    try:
        assert ended_within(end, 10), "ffmpeg outlived its worker"
    finally:
        os.close(end)


def test_several_threads_run_encodes_at_once() -> None:
    """The kernel ties a child to the thread that started it: others may end meanwhile."""
    frames: list[int] = []

    def work(seconds: float) -> None:
        frames.append(run([*lavfi(seconds), *TO_NOWHERE]).frames)

    threads = [threading.Thread(target=work, args=(seconds,)) for seconds in (0.2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(frames) == [5, 100]
