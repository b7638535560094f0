-- name: chains
-- The first step and the last: of a job that never continued they are one. The id of a later step is no chain's.
SELECT
    first.id, first.task, first.queue, first.created_at, first.key, first.tags, coalesce(chain.steps, 1) AS steps,
    last.id AS step, last.task AS step_task,
    blocked.job_id IS NOT NULL AS is_blocked, ready.ready_at, lease.expires_at,
    archive.state AS ended_state, archive.finished_at, archive.result, archive.code, archive.message, archive.traceback
FROM holdfast_job AS first
LEFT JOIN holdfast_chain AS chain ON chain.id = first.id
LEFT JOIN holdfast_job AS last ON last.id = coalesce(chain.step, first.id)
LEFT JOIN holdfast_lease AS lease ON lease.job_id = last.id
LEFT JOIN holdfast_ready AS ready ON ready.job_id = last.id
LEFT JOIN holdfast_blocked AS blocked ON blocked.job_id = last.id
LEFT JOIN holdfast_archive AS archive ON archive.job_id = last.id
WHERE first.id IN ({ids}) AND (first.chain_id IS NULL OR first.chain_id = first.id)
