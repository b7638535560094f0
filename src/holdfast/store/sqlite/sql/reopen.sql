-- name: lasting_keys
-- The first step's first: it is the one that holds it where a later step has the same.
SELECT id, scope, key
FROM holdfast_job
WHERE id IN (:chain, :job) AND key IS NOT NULL AND held_for IS NULL
ORDER BY id <> :chain

-- name: simple_success
SELECT worker_id, claimed_at, finished_at, token, late FROM holdfast_archive WHERE job_id = ? AND token IS NOT NULL
