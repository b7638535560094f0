-- name: parts
SELECT name, state, done, total, data, error, started_at, completed_at FROM holdfast_part WHERE job_id = ? ORDER BY number
