-- name: worker
INSERT INTO holdfast_worker (id, name, info, registered_at) VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, info = excluded.info
