-- name: workers
SELECT * FROM holdfast_worker WHERE past = 0
ORDER BY offline_at DESC NULLS FIRST, registered_at DESC, id DESC
LIMIT ?

-- name: behind_the_living
SELECT * FROM holdfast_worker
WHERE past = 0 AND (offline_at IS NOT NULL OR (registered_at, id) < (:registered_at, :id))
ORDER BY offline_at DESC NULLS FIRST, registered_at DESC, id DESC
LIMIT :limit

-- name: behind_the_gone
SELECT * FROM holdfast_worker
WHERE past = 0 AND (offline_at, registered_at, id) < (:offline_at, :registered_at, :id)
ORDER BY offline_at DESC, registered_at DESC, id DESC
LIMIT :limit

-- name: known
SELECT * FROM holdfast_worker WHERE id IN ({ids})

-- name: held
-- Reads every lease: there is one for each running job.
SELECT worker_id, job_id FROM holdfast_lease ORDER BY job_id
