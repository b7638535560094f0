-- name: advance
UPDATE holdfast_schedule SET next_at = ? WHERE name = ? AND next_at = ?

-- name: fired
UPDATE holdfast_schedule SET last_at = ?, last_job = ? WHERE name = ?
