-- name: worker
UPDATE holdfast_worker SET heartbeat_at = ?, counters = ?, offline_at = NULL WHERE id = ? RETURNING disabled_at, draining_at, capabilities

-- name: capable
-- Those that may have what a worker with these capabilities has not: in most fleets nobody has.
SELECT capabilities, slots, counters FROM holdfast_worker
WHERE offline_at IS NULL AND disabled_at IS NULL AND draining_at IS NULL
    AND capabilities <> '[]' AND capabilities <> ? AND coalesce(heartbeat_at, registered_at) > ?
