-- name: candidates
SELECT chain.id, ({matches}) AND ({stands})
FROM holdfast_chain AS chain
CROSS JOIN holdfast_job AS job ON job.id = chain.id
WHERE chain.id < :after AND (:chain IS NULL OR chain.id = :chain)
ORDER BY chain.id DESC
LIMIT :searched
