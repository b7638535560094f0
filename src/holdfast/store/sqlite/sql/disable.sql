-- name: worker
UPDATE holdfast_worker SET disabled_at = coalesce(disabled_at, ?), disabled_by = ? WHERE id = ?
