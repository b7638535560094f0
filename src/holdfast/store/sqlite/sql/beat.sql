-- name: worker
UPDATE holdfast_worker SET heartbeat_at = ?, counters = ?, offline_at = NULL WHERE id = ? RETURNING disabled_at, draining_at
