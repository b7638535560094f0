-- name: matching
-- {sources}: where jobs of the wanted states are, each in the order of ids, so that the newest are merged without a sort
WITH candidate (id) AS (
    {sources}
    ORDER BY 1 DESC
    LIMIT :searched
)
SELECT candidate.id
FROM candidate
CROSS JOIN holdfast_job AS job ON job.id = candidate.id
WHERE (:task IS NULL OR job.task = :task)
    AND (:queue IS NULL OR job.queue = :queue)
    AND (:key IS NULL OR job.key = :key)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(job.tags) AS tag WHERE tag.value = :tag))
    AND (:created_from IS NULL OR job.created_at >= :created_from)
    AND (:created_before IS NULL OR job.created_at < :created_before)
ORDER BY candidate.id DESC
LIMIT :matches

-- name: bound
-- where the search has to stop: the last candidate, when there are more beyond it
SELECT id FROM ({sources} ORDER BY 1 DESC LIMIT 2 OFFSET :searched - 1)

-- name: from_all
SELECT id AS id FROM holdfast_job WHERE id < :after

-- name: from_blocked
SELECT job_id AS id FROM holdfast_blocked WHERE job_id < :after

-- name: from_scheduled
SELECT job_id AS id FROM holdfast_scheduled WHERE job_id < :after

-- name: from_ready
SELECT job_id AS id FROM holdfast_ready WHERE job_id < :after

-- name: from_running
SELECT job_id AS id FROM holdfast_lease WHERE job_id < :after

-- name: from_archive
SELECT job_id AS id FROM holdfast_archive WHERE job_id < :after AND state IN ({states})
