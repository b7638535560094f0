-- name: worker
-- And whether any key of a limit waits, which takes a look of its own.
SELECT disabled_at IS NOT NULL, EXISTS (SELECT 1 FROM holdfast_waiting_key) FROM holdfast_worker WHERE id = ?

-- name: heads
-- From one lane that holds anything to the next: the cost grows with the lanes, not with the jobs.
WITH RECURSIVE waiting (place) AS (
    SELECT min(lane) FROM holdfast_ready
    UNION ALL
    SELECT (SELECT min(ready.lane) FROM holdfast_ready AS ready WHERE ready.lane > waiting.place)
    FROM waiting
    WHERE waiting.place IS NOT NULL
)
SELECT waiting.place, head.seq, head.ready_at, lane.queue, lane.task, lane.priority, lane.requires
FROM waiting
CROSS JOIN holdfast_lane AS lane ON lane.lane = abs(waiting.place) & ~1
CROSS JOIN holdfast_ready AS head ON head.lane = waiting.place
    AND head.seq = (SELECT min(first.seq) FROM holdfast_ready AS first WHERE first.lane = waiting.place)
WHERE (lane.task = '' OR lane.task IN (SELECT known.value FROM json_each(?) AS known))
    AND NOT EXISTS (SELECT 1 FROM holdfast_queue AS queue WHERE queue.name = lane.queue)
ORDER BY waiting.place

-- name: plain_heads
-- As `heads`, of lanes without a key. By the lanes that are known: where keys wait, going from one lane that holds anything to the
-- next would lead through all of them.
SELECT head.lane, head.seq, head.ready_at, lane.queue, lane.task, lane.priority, lane.requires
FROM holdfast_lane AS lane INDEXED BY holdfast_lane_plain
CROSS JOIN json_each('[-1, 1]') AS side
CROSS JOIN json_each('[0, 1]') AS retries
CROSS JOIN holdfast_ready AS head ON head.lane = side.value * (lane.lane | retries.value)
    AND head.seq = (SELECT min(first.seq) FROM holdfast_ready AS first WHERE first.lane = side.value * (lane.lane | retries.value))
WHERE lane.lane & 2 = 0
    AND (lane.task = '' OR lane.task IN (SELECT known.value FROM json_each(?) AS known))
    AND NOT EXISTS (SELECT 1 FROM holdfast_queue AS queue WHERE queue.name = lane.queue)

-- name: lanes_of_keys
WITH RECURSIVE waiting (lane) AS (
    SELECT min(lane) FROM holdfast_waiting_key
    UNION ALL
    SELECT (SELECT min(further.lane) FROM holdfast_waiting_key AS further WHERE further.lane > waiting.lane)
    FROM waiting
    WHERE waiting.lane IS NOT NULL
)
SELECT waiting.lane, lane.queue, lane.requires
FROM waiting
CROSS JOIN holdfast_lane AS lane ON lane.lane = waiting.lane
WHERE lane.task IN (SELECT known.value FROM json_each(?) AS known)
    AND NOT EXISTS (SELECT 1 FROM holdfast_queue AS queue WHERE queue.name = lane.queue)

-- name: keys
SELECT entry FROM holdfast_waiting_key WHERE lane = ? AND entry > ? ORDER BY entry LIMIT ?

-- name: lanes_at
SELECT lane.lane, lane.queue, lane.task, lane.requires
FROM json_each(?) AS known
CROSS JOIN holdfast_lane AS lane ON lane.lane = known.value

-- name: heads_at
SELECT head.lane, head.seq, head.ready_at, lane.queue, lane.task, lane.priority, lane.requires
FROM json_each(?) AS known
CROSS JOIN holdfast_ready AS head ON head.lane = known.value
    AND head.seq = (SELECT min(first.seq) FROM holdfast_ready AS first WHERE first.lane = known.value)
CROSS JOIN holdfast_lane AS lane ON lane.lane = abs(known.value) & ~1

-- name: oldest_keys
SELECT known.entry, min(head.ready_at) AS since
FROM (SELECT entry FROM holdfast_waiting_key WHERE lane = ? AND entry > ? ORDER BY entry LIMIT ?) AS known
CROSS JOIN json_each('[-1, 1]') AS side
CROSS JOIN json_each('[0, 1]') AS retries
CROSS JOIN holdfast_ready AS head ON head.lane = side.value * (known.entry | retries.value)
    AND head.seq = (SELECT min(first.seq) FROM holdfast_ready AS first WHERE first.lane = side.value * (known.entry | retries.value))
GROUP BY known.entry
ORDER BY since
LIMIT ?

-- name: last_key
SELECT entry FROM holdfast_waiting_key WHERE lane = ? AND entry > ? ORDER BY entry LIMIT 1 OFFSET ? - 1

-- name: forget_key
DELETE FROM holdfast_waiting_key WHERE lane = ? AND entry = ?

-- name: head_task
SELECT job.task
FROM holdfast_ready AS head
CROSS JOIN holdfast_job AS job ON job.id = head.job_id
WHERE head.lane = ? AND head.seq = ?

-- name: take
-- One row for all of them: each row that is handed over is a wait for the interpreter's lock. Numbers with a fraction would not
-- come through JSON as they are, so whoever finds two lengths of leases here asks for them with `lengths`; wide args would come
-- dearly, and are asked for with `args`.
SELECT
    group_concat(hex(claim.job_id), ''),
    min(claim.lease),
    max(claim.lease),
    json_group_array(json_array(
        claim.seq, claim.attempt, claim.failures, claim.task, claim.queue, claim.priority, claim.lane, claim.policy,
        claim.created_at, hex(claim.chain_id), claim.trace, claim.blockers, claim.start_by, claim.ready_at,
        claim.args
    ))
FROM (
    SELECT
        ready.seq, ready.job_id, ready.attempt, ready.failures, job.task, job.queue, job.priority, job.lane, job.lease, job.policy,
        job.created_at, job.chain_id, job.trace, job.blockers, deadline.start_by,
        nullif(ready.ready_at, job.created_at) AS ready_at,
        iif(length(job.args) <= :wide, job.args, NULL) AS args
    FROM holdfast_ready AS ready
    CROSS JOIN holdfast_job AS job ON job.id = ready.job_id
    LEFT JOIN holdfast_deadline AS deadline ON deadline.job_id = ready.job_id
    WHERE ready.lane = :place
    ORDER BY ready.seq
    LIMIT :limit
) AS claim

-- name: lengths
SELECT job.lease
FROM holdfast_ready AS ready
CROSS JOIN holdfast_job AS job ON job.id = ready.job_id
WHERE ready.lane = :place
ORDER BY ready.seq
LIMIT :limit

-- name: args
SELECT args FROM holdfast_job WHERE id = ?

-- name: lease
INSERT INTO holdfast_lease (
    job_id, token, worker_id, attempt, failures, lane, entry, seq, length, claimed_at, heartbeat_at, expires_at, keyed, expires,
    chain_id
)
SELECT
    ready.job_id, substr(:tokens, 16 * known.key + 1, 16), :worker_id, ready.attempt + 1, ready.failures, job.lane, :entry,
    ready.seq, :length, :now, :now, :now + :length, job.key IS NOT NULL, deadline.job_id IS NOT NULL, job.chain_id
FROM json_each(:seqs) AS known
CROSS JOIN holdfast_ready AS ready ON ready.lane = :place AND ready.seq = known.value
CROSS JOIN holdfast_job AS job ON job.id = ready.job_id
LEFT JOIN holdfast_deadline AS deadline ON deadline.job_id = ready.job_id

-- name: lease_several
-- The same for jobs of several lanes, each given as lane (or front) and seq: a statement for each lane takes longer than all the rest.
INSERT INTO holdfast_lease (
    job_id, token, worker_id, attempt, failures, lane, entry, seq, length, claimed_at, heartbeat_at, expires_at, keyed, expires,
    chain_id
)
SELECT
    ready.job_id, substr(:tokens, 16 * known.key + 1, 16), :worker_id, ready.attempt + 1, ready.failures, job.lane,
    abs(ready.lane) & ~1, ready.seq, :length, :now, :now, :now + :length, job.key IS NOT NULL, deadline.job_id IS NOT NULL, job.chain_id
FROM json_each(:places) AS known
CROSS JOIN holdfast_ready AS ready ON ready.lane = json_extract(known.value, '$[0]') AND ready.seq = json_extract(known.value, '$[1]')
CROSS JOIN holdfast_job AS job ON job.id = ready.job_id
LEFT JOIN holdfast_deadline AS deadline ON deadline.job_id = ready.job_id

-- name: remove
DELETE FROM holdfast_ready WHERE lane = ? AND seq <= ?
