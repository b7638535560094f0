-- name: held
-- Reads every lease: there is one for each running job.
SELECT job_id FROM holdfast_lease WHERE worker_id = ? ORDER BY job_id
