"""What every notifier promises, through Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.notify.redis import RedisNotifier
from holdfast.system import SystemEnvironment
from tests.notify.test_notifiers import Promises

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.notify.port import Notifier
    from tests.support.redis import RedisServer

WORLD = SystemEnvironment()


class TestRedis(Promises):
    @pytest.fixture
    def make(self, redis_server: RedisServer, name: str) -> Callable[[], Notifier]:
        return lambda: RedisNotifier(redis_server.url, WORLD, name=name)


class TestAcrossProcesses(Promises):
    """Every handle stands for a process of its own: none meets another but through Redis."""

    @pytest.fixture
    def make(self, redis_server: RedisServer, name: str) -> Callable[[], Notifier]:
        made = iter(range(1000))
        return lambda: RedisNotifier(f"{redis_server.url}?client_name=handle-{next(made)}", WORLD, name=name)
