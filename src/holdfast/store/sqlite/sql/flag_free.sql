-- name: flag
UPDATE holdfast_lease SET free = 1 WHERE job_id = ?
