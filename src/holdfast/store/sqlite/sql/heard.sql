-- name: unnoted
SELECT 1 FROM holdfast_worker
WHERE id IN ({ids}) AND (offline_at IS NOT NULL OR coalesce(heartbeat_at, registered_at) <= ?) LIMIT 1

-- name: workers
UPDATE holdfast_worker SET heartbeat_at = ?, offline_at = NULL, past = 0
WHERE id IN ({ids}) AND (offline_at IS NOT NULL OR coalesce(heartbeat_at, registered_at) <= ?)
