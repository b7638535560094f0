-- name: worker
-- Who registers again gives a sign of life.
INSERT INTO holdfast_worker (id, name, kind, version, slots, capabilities, info, owner, registered_at)
VALUES (:id, :name, :kind, :version, :slots, :capabilities, :info, :owner, :now)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, kind = excluded.kind, version = excluded.version, slots = excluded.slots,
    capabilities = excluded.capabilities, info = excluded.info, heartbeat_at = :now, offline_at = NULL, past = 0, draining_at = NULL,
    owner = excluded.owner
