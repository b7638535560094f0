-- name: keys
SELECT id, name, role, digest, queues, actions, created_by, created_at, expires_at, revoked_at, revoked_by, used_at
FROM holdfast_key
ORDER BY created_at DESC, id DESC

-- name: by_id
SELECT id, name, role, digest, queues, actions, created_by, created_at, expires_at, revoked_at, revoked_by, used_at
FROM holdfast_key
WHERE id IN (SELECT value FROM json_each(?))
ORDER BY created_at DESC, id DESC
