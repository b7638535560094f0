-- name: worker
UPDATE holdfast_worker SET disabled_at = NULL, disabled_by = '', draining_at = NULL WHERE id = ?
