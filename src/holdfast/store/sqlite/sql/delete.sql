-- name: dependents
-- The live jobs that wait for a chain, or will be handed its result.
SELECT edge.waiter_id
FROM holdfast_blocker AS edge
WHERE edge.blocker_id = ? AND NOT EXISTS (SELECT 1 FROM holdfast_archive AS archive WHERE archive.job_id = edge.waiter_id)
ORDER BY edge.waiter_id

-- name: blockers
SELECT blocker_id FROM holdfast_blocker WHERE waiter_id IN ({ids})
