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

-- name: workers
-- So many at a time: the next walk goes on.
UPDATE holdfast_worker SET past = 1, info = '{}', capabilities = '[]', counters = '{}'
WHERE id IN (
    SELECT id FROM holdfast_worker
    WHERE past = 0 AND offline_at < ? AND disabled_at IS NULL AND id NOT IN (SELECT worker_id FROM holdfast_lease)
    ORDER BY offline_at LIMIT ?
)
