-- name: worker
UPDATE holdfast_worker SET heartbeat_at = ?, counters = ?, offline_at = NULL, past = 0 WHERE id = ? RETURNING disabled_at, draining_at, capabilities

-- name: capable
-- Those that may have what a worker with these capabilities has not: in most fleets nobody has.
SELECT id, capabilities, slots, counters FROM holdfast_worker
WHERE past = 0 AND offline_at IS NULL AND disabled_at IS NULL AND draining_at IS NULL
    AND capabilities <> '[]' AND capabilities <> ? AND coalesce(heartbeat_at, registered_at) > ?

-- name: held
-- Asked only where one of those does not say how many jobs it runs. Reads every lease, as there is no index by worker.
SELECT worker_id, count(*) FROM holdfast_lease GROUP BY worker_id
