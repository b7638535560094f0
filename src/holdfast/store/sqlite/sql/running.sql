-- Both read every lease: there is one for each running job.

-- name: first
SELECT lease.job_id
FROM holdfast_lease AS lease
WHERE :queues IS NULL OR EXISTS (
    SELECT 1 FROM holdfast_job AS job
    WHERE job.id = lease.job_id AND job.queue IN (SELECT known.value FROM json_each(:queues) AS known)
)
ORDER BY lease.expires_at <= :now DESC, lease.claimed_at, lease.job_id
LIMIT :limit

-- name: lapsed
SELECT count(*)
FROM holdfast_lease AS lease
WHERE lease.expires_at <= :now AND (:queues IS NULL OR EXISTS (
    SELECT 1 FROM holdfast_job AS job
    WHERE job.id = lease.job_id AND job.queue IN (SELECT known.value FROM json_each(:queues) AS known)
))
