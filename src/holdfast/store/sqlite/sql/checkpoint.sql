-- name: before
SELECT number, started_at, completed_at FROM holdfast_part WHERE job_id = ? AND name = ?

-- name: write
INSERT OR REPLACE INTO holdfast_part (job_id, name, number, state, done, total, data, error, started_at, completed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
