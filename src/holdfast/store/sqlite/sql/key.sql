-- name: key
SELECT id, name, role, digest, queues, actions, created_by, created_at, expires_at, revoked_at, revoked_by, used_at
FROM holdfast_key
WHERE id = ?
