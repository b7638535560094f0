-- name: held
SELECT expires_at, length, cancel_requested FROM holdfast_lease WHERE job_id = ? AND token = ?

-- name: lease
UPDATE holdfast_lease SET expires_at = ?, heartbeat_at = ? WHERE job_id = ?
