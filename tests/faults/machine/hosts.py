"""Several hosts on one network: a namespace each, and a switch between them that can leave one of them out.

Each host has one TUN device, whose other end is held here; a thread carries every packet to the host that it is addressed to.
The machine that runs the tests is on the same network, and nothing of its own network is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.faults.machine.network import LARGEST, _run, _tun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FIRST = IPv4Address("203.0.113.0")
"""The beginning of a network that is set aside for documentation: nothing else here has an address of it."""
BLOCK, BLOCKS = 8, 32
CLONE_NEWNET = 0x40000000


@dataclass(slots=True)
class Host:
    """A host: its only way to anybody leads through the switch."""

    name: str
    space: str
    """The name of its namespace; empty: the machine that runs the tests."""
    address: str
    device: str
    end: int = -1
    cut: bool = False
    """Whether nothing is carried to it or from it."""

    @property
    def prefix(self) -> list[str]:
        """What to put before a command that shall run there."""
        return ["ip", "netns", "exec", self.space]

    def call(self, work: Callable[[], object]) -> None:
        """Call something there, in a thread of its own: what processes it starts are there too."""
        failed: list[BaseException] = []

        def inside() -> None:
            try:
                _go_to(self.space)
                work()
            except BaseException as error:  # noqa: BLE001  raised below
                failed.append(error)

        thread = threading.Thread(target=inside, name=f"on-{self.name}")
        thread.start()
        thread.join()
        if failed:
            raise failed[0]


class Switch:
    """Hosts by their names, and what carries packets between them. Everything is removed at the end."""

    def __init__(self, names: Sequence[str]) -> None:
        mark = os.getpid() % BLOCKS
        first = FIRST + BLOCK * mark
        self.network = f"{first}/29"
        addresses = [str(first + number) for number in range(1, BLOCK - 1)]
        self._desk = Host("desk", "", addresses[0], f"hfs{mark}d")
        self.hosts = {
            name: Host(name, f"holdfast-{mark}-{name}", address, f"hfs{mark}-{number}")
            for number, (name, address) in enumerate(zip(names, addresses[1:], strict=False))
        }
        assert len(self.hosts) == len(names), "there are no more addresses"
        self.lost = 0
        """Packets that were not carried, for one of the two was cut off."""
        self._stopping = threading.Event()
        self._carrier = threading.Thread(target=self._carry, name="switch", daemon=True)

    def __enter__(self) -> Self:
        try:
            for host in self.hosts.values():
                _run("ip", "netns", "delete", host.space, check=False)  # of a process of the same number that was killed
                _run("ip", "netns", "add", host.space)
                host.end = _tun(host.device)
                _run("ip", "link", "set", host.device, "netns", host.space)
                _run("ip", "-n", host.space, "address", "add", f"{host.address}/29", "dev", host.device)
                for device in ("lo", host.device):
                    _run("ip", "-n", host.space, "link", "set", device, "up")
            self._desk.end = _tun(self._desk.device)
            _run("ip", "address", "add", f"{self._desk.address}/29", "dev", self._desk.device)
            _run("ip", "link", "set", self._desk.device, "up")
            self._carrier.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._carrier.ident is not None:
            self._carrier.join()
        for host in (self._desk, *self.hosts.values()):
            if host.end >= 0:
                os.close(host.end)  # which removes the device
            if host.space:
                _run("ip", "netns", "delete", host.space, check=False)

    def _carry(self) -> None:
        everybody = (self._desk, *self.hosts.values())
        by_end = {host.end: host for host in everybody}
        by_address = {IPv4Address(host.address).packed: host for host in everybody}
        while not self._stopping.is_set():
            for end in select.select(list(by_end), [], [], 0.1)[0]:
                packet = os.read(end, LARGEST)
                target = by_address.get(packet[16:20])
                if target is None:  # no IPv4, or nobody
                    continue
                if target.cut or by_end[end].cut:
                    self.lost += 1
                    continue
                with contextlib.suppress(OSError):  # a device that is about to go
                    os.write(target.end, packet)


def _go_to(space: str) -> None:
    """Have this thread be in a network namespace."""
    with Path("/run/netns", space).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot go to {space}")
