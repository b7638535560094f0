-- name: locate
SELECT
    job.lane, job.entry, job.key IS NOT NULL, deadline.job_id IS NOT NULL, job.chain_id,
    blocked.job_id IS NOT NULL, blocked.run_at,
    scheduled.run_at,
    ready.job_id IS NOT NULL,
    archive.state, archive.continued_by,
    coalesce(lease.attempt, ready.attempt, scheduled.attempt, archive.attempt, 0),
    coalesce(lease.failures, ready.failures, scheduled.failures, archive.failures, 0),
    lease.token, lease.worker_id, lease.seq, lease.claimed_at, lease.expires_at,
    lease.cancel_requested, lease.cancel_reason, lease.free
FROM holdfast_job AS job
LEFT JOIN holdfast_lease AS lease ON lease.job_id = job.id
LEFT JOIN holdfast_ready AS ready ON ready.job_id = job.id
LEFT JOIN holdfast_scheduled AS scheduled ON scheduled.job_id = job.id
LEFT JOIN holdfast_blocked AS blocked ON blocked.job_id = job.id
LEFT JOIN holdfast_archive AS archive ON archive.job_id = job.id
LEFT JOIN holdfast_deadline AS deadline ON deadline.job_id = job.id
WHERE job.id = ?

-- name: leave_blocked
DELETE FROM holdfast_blocked WHERE job_id = ?

-- name: leave_scheduled
DELETE FROM holdfast_scheduled WHERE job_id = ?

-- name: leave_ready
DELETE FROM holdfast_ready WHERE job_id = ?

-- name: leave_running
DELETE FROM holdfast_lease WHERE job_id = ?

-- name: leave_archive
DELETE FROM holdfast_archive WHERE job_id = ?

-- name: enter_scheduled
INSERT INTO holdfast_scheduled (run_at, job_id, attempt, failures, signal) VALUES (?, ?, ?, ?, ?)

-- name: enter_ready
INSERT INTO holdfast_ready (lane, seq, job_id, attempt, failures, ready_at) VALUES (?, ?, ?, ?, ?, ?)

-- name: enter_archive
INSERT INTO holdfast_archive (
    job_id, state, attempt, failures, finished_at, claimed_at, worker_id, token, late, code, message, traceback, result,
    continued_by
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: record_attempt
INSERT INTO holdfast_attempt (
    job_id, attempt, worker_id, claimed_at, ended_at, event, token, late, code, message, traceback
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: chain
SELECT step, steps FROM holdfast_chain WHERE id = ?

-- name: steps
SELECT id FROM holdfast_job WHERE chain_id = :chain
UNION ALL
SELECT id FROM holdfast_job WHERE id = :chain AND chain_id IS NULL

-- name: last_attempt
SELECT worker_id, claimed_at FROM holdfast_attempt WHERE job_id = ? ORDER BY attempt DESC LIMIT 1

-- name: key_holder
SELECT job_id, until FROM holdfast_unique_key WHERE scope = ? AND key = ?

-- name: free_key
DELETE FROM holdfast_unique_key WHERE job_id = ? AND until IS NULL

-- name: any_blocked
SELECT 1 FROM holdfast_blocked LIMIT 1

-- name: waiters
SELECT waiter_id, position, blocker_id FROM holdfast_blocker WHERE blocker_id IN ({ids}) AND ended = 0

-- name: waits
SELECT 1 FROM holdfast_blocker WHERE waiter_id = ? AND ended = 0 LIMIT 1

-- name: policy
SELECT policy FROM holdfast_job WHERE id = ?

-- name: end_blocker
UPDATE holdfast_blocker SET ended = 1 WHERE blocker_id = ? AND waiter_id = ?

-- name: forget_blockers
DELETE FROM holdfast_blocker WHERE waiter_id = ?

-- name: forget_attempts
DELETE FROM holdfast_attempt WHERE job_id = ?

-- name: forget_events
DELETE FROM holdfast_event WHERE job_id = ?

-- name: forget_deadline
DELETE FROM holdfast_deadline WHERE job_id = ?

-- name: forget_log
DELETE FROM holdfast_log WHERE job_id = ?

-- name: forget_parts
DELETE FROM holdfast_part WHERE job_id = ?

-- name: forget_progress
DELETE FROM holdfast_progress WHERE job_id = ?

-- name: forget_key
DELETE FROM holdfast_unique_key WHERE job_id = ?

-- name: forget_chain
DELETE FROM holdfast_chain WHERE id = ?

-- name: forget_job
DELETE FROM holdfast_job WHERE id = ?
