-- name: waiting
-- Passes over those that run: there are no more of them than leases.
SELECT deadline.job_id, deadline.start_by - job.created_at
FROM holdfast_deadline AS deadline
CROSS JOIN holdfast_job AS job ON job.id = deadline.job_id
WHERE deadline.start_by <= ?
    AND NOT EXISTS (SELECT 1 FROM holdfast_lease AS lease WHERE lease.job_id = deadline.job_id)
ORDER BY deadline.start_by, deadline.job_id
LIMIT ?
