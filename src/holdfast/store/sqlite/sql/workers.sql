-- name: workers
SELECT
    id, name, info, kind, version, slots, capabilities, registered_at, heartbeat_at, offline_at, disabled_at, disabled_by,
    draining_at, counters, owner
FROM holdfast_worker
ORDER BY registered_at DESC, id DESC
LIMIT ?

-- name: held
-- Reads every lease: there is one for each running job.
SELECT worker_id, job_id FROM holdfast_lease ORDER BY job_id
