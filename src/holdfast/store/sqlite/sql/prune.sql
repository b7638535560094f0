-- name: archived
SELECT job_id, state, finished_at FROM holdfast_archive WHERE job_id > ? ORDER BY job_id LIMIT ?
