-- name: request
UPDATE holdfast_lease SET cancel_requested = 1, cancel_reason = ? WHERE job_id = ?
