"""A network namespace with one way out of it, which loses packets, delays them, or carries none at all.

The way is a pair of TUN devices, one at each end, and a thread that carries the packets from one to the other. What it does not
carry vanishes: nobody is told, as with a broken switch. It needs nothing of the kernel that a small one might lack, and what it
loses is decided by a seed.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import select
import struct
import subprocess
import threading
import time
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import random
    from urllib.parse import SplitResult

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
LARGEST = 65_536
FIRST = IPv4Address("198.18.0.0")
"""The beginning of the addresses that are set aside for the measuring of networks: nothing else here has one."""
PAIRS = 2**15


class Namespace:
    """A network namespace whose only way leads to this machine. Everything is removed at the end."""

    def __init__(self, rng: random.Random) -> None:
        mark = os.getpid() % PAIRS
        self.name = f"holdfast-{mark}"
        self.here = str(FIRST + 4 * mark + 1)
        """The address of this machine, as the namespace sees it."""
        self.there = str(FIRST + 4 * mark + 2)
        """The address of whoever is inside."""
        self._devices = (f"hf{mark}a", f"hf{mark}b")
        self._rng = rng
        self._loss = 0.0
        self._delay = 0.0
        self._cut = False
        self.lost = 0
        """Packets that vanished so far."""
        self._ends: list[int] = []
        self._stopping = threading.Event()
        self._carrier = threading.Thread(target=self._carry, name="carrier", daemon=True)

    @property
    def prefix(self) -> list[str]:
        """What to put before a command that shall run inside."""
        return ["ip", "netns", "exec", self.name]

    def url(self, parts: SplitResult) -> str:
        """Return the URL of a server of this machine, as seen from inside."""
        return parts._replace(netloc=f"{parts.username}@{self.here}:{parts.port}").geturl()

    def __enter__(self) -> Self:
        try:
            _run("ip", "netns", "delete", self.name, check=False)  # one of a process of the same number that was killed
            _run("ip", "netns", "add", self.name)
            self._ends = [_tun(device) for device in self._devices]
            outer, inner = self._devices
            _run("ip", "address", "add", f"{self.here}/30", "dev", outer)
            _run("ip", "link", "set", outer, "up")
            _run("ip", "link", "set", inner, "netns", self.name)
            _run("ip", "-n", self.name, "address", "add", f"{self.there}/30", "dev", inner)
            _run("ip", "-n", self.name, "link", "set", "lo", "up")
            self.up()
            self._carrier.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._carrier.ident is not None:
            self._carrier.join()
        for end in self._ends:
            os.close(end)  # which removes the device
        self._ends = []
        _run("ip", "netns", "delete", self.name, check=False)

    # faults

    def cut(self) -> None:
        """Carry nothing any more."""
        self._cut = True

    def mend(self) -> None:
        """Carry everything again."""
        self._cut = False

    def worsen(self, *, loss: float, delay: float) -> None:
        """Lose this share of the packets, and take so many seconds to carry the others."""
        self._loss, self._delay = loss, delay

    def down(self) -> None:
        """Switch off the device inside: whoever wants to send is told that there is no way."""
        _run("ip", "-n", self.name, "link", "set", self._devices[1], "down")

    def up(self) -> None:
        """Switch it on again."""
        _run("ip", "-n", self.name, "link", "set", self._devices[1], "up")

    def _carry(self) -> None:
        """Carry packets from each end to the other, those that are due."""
        on_the_way: list[tuple[float, int, int, bytes]] = []
        number = 0
        one, other = self._ends
        while not self._stopping.is_set():
            wait = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else 0.1
            for end in select.select(self._ends, [], [], min(wait, 0.1))[0]:
                try:
                    packet = os.read(end, LARGEST)
                except OSError:  # its device is switched off
                    time.sleep(0.01)
                    continue
                number += 1
                if self._cut or self._rng.random() < self._loss:
                    self.lost += 1
                    continue
                target = other if end == one else one
                heapq.heappush(on_the_way, (time.monotonic() + self._delay, number, target, packet))
            while on_the_way and on_the_way[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(on_the_way)
                try:
                    os.write(target, packet)
                except OSError:  # as above: a packet that nobody takes
                    self.lost += 1


def _tun(name: str) -> int:
    """Make a TUN device; it is gone when its descriptor is closed."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _run(*command: str, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
