-- name: candidates
-- Each source is in the order of ids, so that the newest are merged without a sort, and reading may stop at any row.
{sources}
ORDER BY 1 DESC
LIMIT :searched

-- name: from_all
SELECT job.id, {matches}
FROM holdfast_job AS job
WHERE job.id < :after

-- name: from_state
SELECT place.job_id, {matches}
FROM {table} AS place
CROSS JOIN holdfast_job AS job ON job.id = place.job_id
WHERE place.job_id < :after

-- name: from_chain
SELECT job.id, {matches}
FROM holdfast_job AS job
WHERE job.chain_id = :chain AND job.id < :after

-- name: from_chain_of_one
SELECT job.id, {matches}
FROM holdfast_job AS job
WHERE job.id = :chain AND job.chain_id IS NULL AND job.id < :after

-- name: matches
(:task IS NULL OR job.task = :task)
AND (:queue IS NULL OR job.queue = :queue)
AND (:key IS NULL OR job.key = :key)
AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(job.tags) AS tag WHERE tag.value = :tag))
AND (:created_from IS NULL OR job.created_at >= :created_from)
AND (:created_before IS NULL OR job.created_at < :created_before)
