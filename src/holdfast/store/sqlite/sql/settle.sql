-- name: leases
SELECT
    job_id, token, worker_id, attempt, failures, lane, entry, seq, claimed_at, expires_at, keyed, expires, cancel_requested,
    cancel_reason
FROM holdfast_lease
WHERE job_id IN ({ids})

-- name: settled_before
SELECT 1 FROM holdfast_attempt WHERE job_id = ? AND token = ?
UNION ALL
SELECT 1 FROM holdfast_archive WHERE job_id = ? AND token = ?
LIMIT 1

-- name: succeed
INSERT INTO holdfast_archive (
    job_id, state, attempt, failures, finished_at, claimed_at, worker_id, token, late, result
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
