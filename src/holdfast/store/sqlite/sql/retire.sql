-- name: worker
UPDATE holdfast_worker SET offline_at = ? WHERE id = ? AND offline_at IS NULL
