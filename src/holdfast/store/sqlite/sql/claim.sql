-- name: worker
SELECT 1 FROM holdfast_worker WHERE id = ?

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

-- name: head_task
SELECT job.task
FROM holdfast_ready AS head
CROSS JOIN holdfast_job AS job ON job.id = head.job_id
WHERE head.lane = ? AND head.seq = ?

-- name: take
SELECT
    ready.seq, ready.job_id, ready.attempt, ready.failures, job.task, job.queue, job.priority, job.lane, job.lease, job.policy,
    job.created_at, job.chain_id, job.trace, job.blockers, job.key IS NOT NULL, deadline.start_by, job.args
FROM holdfast_ready AS ready
CROSS JOIN holdfast_job AS job ON job.id = ready.job_id
LEFT JOIN holdfast_deadline AS deadline ON deadline.job_id = ready.job_id
WHERE ready.lane = ?
ORDER BY ready.seq
LIMIT ?

-- name: remove
DELETE FROM holdfast_ready WHERE lane = ? AND seq <= ?

-- name: lease
INSERT INTO holdfast_lease (
    job_id, token, worker_id, attempt, failures, lane, entry, seq, length, claimed_at, heartbeat_at, expires_at, keyed, expires,
    chain_id
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
