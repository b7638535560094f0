-- name: silent
UPDATE holdfast_worker SET offline_at = ?
WHERE past = 0 AND offline_at IS NULL AND coalesce(heartbeat_at, registered_at) <= ?
RETURNING id
