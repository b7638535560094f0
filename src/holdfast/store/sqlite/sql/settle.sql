-- name: leases
SELECT
    job_id, token, worker_id, attempt, failures, lane, entry, seq, claimed_at, expires_at, keyed, expires, chain_id,
    cancel_requested, cancel_reason
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

-- name: known_job
SELECT 1 FROM holdfast_job WHERE id = ?

-- name: become_chain
UPDATE holdfast_job SET chain_id = id WHERE id = ?

-- name: next_step
INSERT INTO holdfast_chain (id, step, steps) VALUES (?, ?, 2)
ON CONFLICT (id) DO UPDATE SET step = excluded.step, steps = steps + 1

-- name: chain_waits_for
SELECT edge.blocker_id
FROM holdfast_blocker AS edge
WHERE edge.waiter_id = coalesce((SELECT step FROM holdfast_chain WHERE id = ?), ?) AND NOT edge.ended
