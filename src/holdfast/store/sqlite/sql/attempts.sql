-- name: attempts
-- every claim once: under way in lease, simply succeeded in archive, all others recorded. The latest first
SELECT claim.attempt, claim.worker_id, worker.name, claim.claimed_at, claim.ended_at, claim.event, claim.late, claim.code,
    claim.message, claim.traceback
FROM (
    SELECT * FROM (
        SELECT attempt, worker_id, claimed_at, ended_at, event, late, code, message, traceback
        FROM holdfast_attempt WHERE job_id = :id
        ORDER BY attempt DESC LIMIT :last
    ) AS recorded
    UNION ALL
    SELECT attempt, worker_id, claimed_at, NULL, NULL, 0, NULL, NULL, NULL
    FROM holdfast_lease WHERE job_id = :id
    UNION ALL
    SELECT attempt, worker_id, claimed_at, finished_at, :succeeded, late, NULL, NULL, NULL
    FROM holdfast_archive WHERE job_id = :id AND token IS NOT NULL
) AS claim
LEFT JOIN holdfast_worker AS worker ON worker.id = claim.worker_id
ORDER BY claim.attempt DESC
LIMIT :last
