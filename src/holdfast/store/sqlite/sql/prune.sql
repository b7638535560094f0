-- name: archived
SELECT job_id, state, finished_at, continued_by IS NOT NULL FROM holdfast_archive WHERE job_id > ? ORDER BY job_id LIMIT ?

-- name: signals
DELETE FROM holdfast_signal WHERE emitted_at < ?

-- name: lines
DELETE FROM holdfast_audit
WHERE no IN (
    SELECT oldest.no
    FROM (SELECT no, at FROM holdfast_audit WHERE action = 'enqueue' ORDER BY no LIMIT 1000) AS oldest
    WHERE oldest.at < ?
)

-- name: figures
DELETE FROM holdfast_figure WHERE grain = ? AND coalesce(at, 0) < ?
