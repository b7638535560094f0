"""Who may do what, and who did: keys, and the audit log."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.core.numbers import check_seconds
from holdfast.core.text import clean
from holdfast.errors import BadJob
from holdfast.store.memory.handle import Handle
from holdfast.store.port import TEXT_LIMIT, Action, audit_line, check_rotation, rotation_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.store.port import AuditView, Key

USE_NOTED: Final = timedelta(minutes=1)
"""After which another use of a key is written down."""


class Access(Handle):
    """The access section of the port."""

    async def add_key(self, key: Key, *, by: str = "") -> None:
        """Keep a key; one that is known stays as it is."""
        self._keep(key, by)
        self.audit(audit_line(Action.ADD_KEY, [key.id], by=by, detail=f"{key.role} {key.name}"))

    def _keep(self, key: Key, by: str) -> None:
        known = self.data.access.get(key.id)
        if known is not None and known.digest != key.digest:
            raise BadJob("there is another key of this id", path="key.id")
        if known is None:
            self.data.access[key.id] = msgspec.structs.replace(
                key,
                created_by=clean(key.created_by or by, TEXT_LIMIT),
                created_at=self.environment.now(),
                revoked_at=None,
                revoked_by="",
                used_at=None,
            )

    async def keys(self, ids: Sequence[str] | None = None) -> list[Key]:
        """Return all keys or those of these ids, newest first."""
        known = self.data.access
        wanted = known.values() if ids is None else [known[key_id] for key_id in set(ids) & known.keys()]
        return sorted(wanted, key=attrgetter("created_at", "id"), reverse=True)

    async def expire_key(self, key_id: str, within: float, *, by: str = "") -> bool:
        """Have a key end within so many seconds, sooner where it would anyway."""
        check_seconds(within, "within", least=0.0)
        if (known := self.data.access.get(key_id)) is None:
            return False
        self._expire(known, within)
        self.audit(audit_line(Action.EXPIRE_KEY, [key_id], by=by, detail=f"within {within:g} s"))
        return True

    def _expire(self, known: Key, within: float) -> None:
        end = self.environment.now() + timedelta(seconds=within)
        sooner = end if known.expires_at is None else min(end, known.expires_at)
        self.data.access[known.id] = msgspec.structs.replace(known, expires_at=sooner)

    async def rotate_key(self, key_id: str, new: Key, within: float, *, by: str = "") -> bool:
        """Keep a key in the place of another, which ends a while later."""
        check_rotation(key_id, new, within)
        old, known = self.data.access.get(key_id), self.data.access.get(new.id)
        if old is None:
            return False
        is_live = old.revoked_at is None and (old.expires_at is None or old.expires_at > self.environment.now())
        is_again = known is not None and known.digest == new.digest
        if not is_live and not is_again:
            return False
        self._keep(new, by)  # raises before anything has changed
        self._expire(old, within)
        self.audit(rotation_line(key_id, new, within, by=by))
        return True

    async def revoke_key(self, key_id: str, *, by: str = "") -> bool:
        """End a key at once; the first revocation stands."""
        if (known := self.data.access.get(key_id)) is None:
            return False
        if known.revoked_at is None:
            ended = {"revoked_at": self.environment.now(), "revoked_by": clean(by, TEXT_LIMIT)}
            self.data.access[key_id] = msgspec.structs.replace(known, **ended)
        self.audit(audit_line(Action.REVOKE_KEY, [key_id], by=by))
        return True

    async def use_key(self, key_id: str) -> None:
        """Note that a key was used, once a minute at most."""
        known, now = self.data.access.get(key_id), self.environment.now()
        if known is not None and (known.used_at is None or now - known.used_at >= USE_NOTED):
            self.data.access[key_id] = msgspec.structs.replace(known, used_at=now)

    async def note(self, action: Action, targets: Sequence[str] = (), *, by: str, detail: str = "") -> None:
        """Write a line into the audit log for what is no operation of the store."""
        self.write_line(audit_line(action, targets, by=by, detail=detail))

    async def audits(
        self, *, limit: int, before: int | None = None, actor: str | None = None, action: Action | None = None
    ) -> list[AuditView]:
        """Return lines of the audit log, newest first, below number `before`."""
        wanted = None if actor is None else clean(actor, TEXT_LIMIT)
        matching = (
            line
            for line in reversed(self.data.audit)
            if (before is None or line.no < before) and wanted in (None, line.actor) and action in (None, line.action)
        )
        return list(islice(matching, max(0, limit)))
