-- name: born
SELECT born, created_at FROM holdfast_job WHERE id = ?

-- name: stored
-- the latest first
SELECT event, at, state, attempt, actor, detail FROM holdfast_event WHERE job_id = ? ORDER BY number DESC LIMIT ?
