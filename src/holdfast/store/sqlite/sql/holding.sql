-- name: leases
SELECT job_id, token FROM holdfast_lease WHERE worker_id = ? ORDER BY job_id
