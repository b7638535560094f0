-- name: workers
SELECT * FROM holdfast_worker
ORDER BY offline_at DESC NULLS FIRST, registered_at DESC, id DESC
LIMIT ?

-- name: known
SELECT * FROM holdfast_worker WHERE id IN ({ids})

-- name: held
-- Reads every lease: there is one for each running job.
SELECT worker_id, job_id FROM holdfast_lease ORDER BY job_id
