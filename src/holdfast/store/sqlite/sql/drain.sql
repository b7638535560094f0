-- name: worker
UPDATE holdfast_worker SET draining_at = coalesce(draining_at, ?) WHERE id = ?
