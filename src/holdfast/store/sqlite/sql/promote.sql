-- name: due
SELECT scheduled.job_id, scheduled.attempt, scheduled.failures, job.lane, job.entry, job.queue
FROM holdfast_scheduled AS scheduled
CROSS JOIN holdfast_job AS job ON job.id = scheduled.job_id
WHERE scheduled.run_at <= ?
ORDER BY scheduled.run_at, scheduled.job_id
LIMIT ?

-- name: next_due
SELECT min(run_at) FROM holdfast_scheduled
