-- name: leases
SELECT
    job_id, token, worker_id, attempt, failures, lane, entry, seq, claimed_at, expires_at, keyed, expires, chain_id,
    cancel_requested, cancel_reason
FROM holdfast_lease
WHERE job_id IN ({ids})

-- name: settled_before
SELECT event FROM holdfast_attempt WHERE job_id = ? AND token = ?
UNION ALL
SELECT 'succeeded' FROM holdfast_archive WHERE job_id = ? AND token = ?
LIMIT 1

-- name: plain
-- Of many leases at once: the lanes of those under which a success leaves nothing but its row in the archive, and the places of
-- the others.
SELECT
    group_concat(lease.lane) FILTER (WHERE lease.job_id IS NOT NULL),
    json_group_array(known.key) FILTER (WHERE lease.job_id IS NULL)
FROM json_each(:places) AS known
LEFT JOIN holdfast_lease AS lease ON lease.job_id = substr(:ids, 16 * known.key + 1, 16)
    AND lease.token = substr(:tokens, 16 * known.key + 1, 16)
    AND lease.expires_at > :now AND NOT lease.keyed AND NOT lease.expires AND lease.chain_id IS NULL

-- name: succeed
INSERT INTO holdfast_archive (
    job_id, state, attempt, failures, finished_at, claimed_at, worker_id, token, late, result
)
SELECT
    lease.job_id, :state, lease.attempt, :failures, :now, lease.claimed_at, lease.worker_id, lease.token, lease.expires_at <= :now,
    coalesce(:wide, known.value)
FROM json_each(:texts) AS known
CROSS JOIN holdfast_lease AS lease ON lease.job_id = substr(:ids, 16 * known.key + 1, 16)

-- name: leave
DELETE FROM holdfast_lease WHERE job_id IN (SELECT substr(:ids, 16 * known.key + 1, 16) FROM json_each(:texts) AS known)

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
