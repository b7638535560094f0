-- name: lapsed
-- Reads every lease: there is one for each running job, and an index on the end would be written with every heartbeat.
SELECT lease.job_id, lease.expires_at, lease.length, job.task, job.queue, job.policy
FROM holdfast_lease AS lease
CROSS JOIN holdfast_job AS job ON job.id = lease.job_id
WHERE lease.expires_at <= ?
