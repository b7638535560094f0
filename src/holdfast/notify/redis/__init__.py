"""Hints through Redis: streams hand each hint of work to one worker, Pub/Sub tells everyone the rest."""

from holdfast.errors import MissingExtra

try:
    import redis as _redis
except ImportError as _missing:
    raise MissingExtra("redis", "dispatch through Redis", "redis") from _missing

from holdfast.notify.redis.notifier import RedisNotifier

del _redis

__all__ = ["RedisNotifier"]
