-- name: archived
SELECT job_id, state, finished_at, continued_by IS NOT NULL FROM holdfast_archive WHERE job_id > ? ORDER BY job_id LIMIT ?

-- name: signals
DELETE FROM holdfast_signal WHERE emitted_at < ?

-- name: figures
DELETE FROM holdfast_figure WHERE grain = ? AND coalesce(at, 0) < ?
