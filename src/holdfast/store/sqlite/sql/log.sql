-- name: held
SELECT attempt, expires_at, worker_id FROM holdfast_lease WHERE job_id = ? AND token = ?

-- name: line
INSERT INTO holdfast_log (job_id, number, at, attempt, level, logger, message, fields, line) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id, line) WHERE line IS NOT NULL DO NOTHING
