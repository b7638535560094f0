-- name: key
SELECT scope, key, held_for FROM holdfast_job WHERE id = ?

-- name: other_holder
SELECT 1 FROM holdfast_unique_key WHERE scope = ? AND key = ? AND job_id <> ? AND (until IS NULL OR until > ?)

-- name: simple_success
SELECT worker_id, claimed_at, finished_at, token, late FROM holdfast_archive WHERE job_id = ? AND token IS NOT NULL
