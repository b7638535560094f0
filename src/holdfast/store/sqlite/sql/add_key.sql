-- name: digest
SELECT digest FROM holdfast_key WHERE id = ?

-- name: key
INSERT INTO holdfast_key (id, name, role, digest, queues, actions, created_by, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
