-- name: holder
SELECT 1 FROM holdfast_lease WHERE job_id = ? AND token = ?

-- name: any_since
-- Ids are ordered by time: where nothing is as new as the oldest that is brought, none of them can be known.
SELECT 1 FROM holdfast_job WHERE id >= ? LIMIT 1

-- name: known
SELECT id FROM holdfast_job WHERE id IN ({ids})

-- name: chains_of
SELECT id, chain_id FROM holdfast_job WHERE id IN ({ids})

-- name: lane
INSERT OR IGNORE INTO holdfast_lane (lane, queue, task, priority, requires) VALUES (?, ?, ?, ?, ?)

-- name: job
-- Many jobs that differ in nothing but id and args; or one with wide args.
INSERT INTO holdfast_job (
    id, born, created_at, lane, entry, queue, task, priority, lease, policy, scope, key, held_for, requires, tags, chain_id, blockers,
    trace, args
)
SELECT
    substr(:ids, 16 * known.key + 1, 16), :born, :created_at, :lane, :entry, :queue, :task, :priority, :lease, :policy, :scope, :key,
    :held_for, :requires, :tags, :chain_id, :blockers, :trace, coalesce(:wide, known.value)
FROM json_each(:texts) AS known

-- name: chain
INSERT INTO holdfast_chain (id, step, steps) VALUES (?, ?, 1)

-- name: ready
-- Many jobs of one lane, each with its place among those that were given a number at the same time.
INSERT INTO holdfast_ready (lane, seq, job_id, attempt, failures, ready_at)
SELECT :lane, :first + known.value, substr(:ids, 16 * known.key + 1, 16), 0, 0, :now FROM json_each(:places) AS known

-- name: waiting_key
INSERT OR IGNORE INTO holdfast_waiting_key (lane, entry) VALUES (?, ?)

-- name: scheduled
INSERT INTO holdfast_scheduled (run_at, job_id, attempt, failures) VALUES (?, ?, 0, 0)

-- name: deadline
INSERT INTO holdfast_deadline (start_by, job_id) VALUES (?, ?)

-- name: depth
SELECT coalesce(sum(tally.count), 0)
FROM holdfast_lane AS lane
CROSS JOIN holdfast_tally AS tally ON tally.lane = lane.lane
WHERE lane.queue = ? AND tally.state IN (?, ?, ?)

-- name: blocked
INSERT INTO holdfast_blocked (job_id, run_at) VALUES (?, ?)

-- name: blocker
INSERT INTO holdfast_blocker (blocker_id, waiter_id, position, ended) VALUES (?, ?, ?, ?)

-- name: take_key
INSERT OR REPLACE INTO holdfast_unique_key (scope, key, job_id, until) VALUES (?, ?, ?, ?)
