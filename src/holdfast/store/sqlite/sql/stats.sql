-- name: counts
SELECT lane.queue, lane.task, tally.state, sum(tally.count)
FROM holdfast_tally AS tally
CROSS JOIN holdfast_lane AS lane ON lane.lane = tally.lane
WHERE tally.count > 0
GROUP BY lane.queue, lane.task, tally.state
ORDER BY lane.queue, lane.task

-- name: oldest
-- Behind the front, jobs stand in the order in which they became ready: the first is the oldest. The front is short, and read whole.
WITH RECURSIVE waiting (place) AS (
    SELECT min(lane) FROM holdfast_ready
    UNION ALL
    SELECT (SELECT min(ready.lane) FROM holdfast_ready AS ready WHERE ready.lane > waiting.place)
    FROM waiting
    WHERE waiting.place IS NOT NULL
)
SELECT
    lane.queue,
    min(
        CASE
            WHEN waiting.place > 0
                THEN (SELECT head.ready_at FROM holdfast_ready AS head WHERE head.lane = waiting.place ORDER BY head.seq LIMIT 1)
            ELSE (SELECT min(front.ready_at) FROM holdfast_ready AS front WHERE front.lane = waiting.place)
        END
    )
FROM waiting
CROSS JOIN holdfast_lane AS lane ON lane.lane = abs(waiting.place) & ~1
GROUP BY lane.queue
