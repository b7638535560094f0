-- name: blockers
SELECT
    edge.blocker_id, last.id AS step, last.task AS step_task, first.task,
    blocked.job_id IS NOT NULL AS is_blocked, ready.ready_at, lease.expires_at,
    archive.state AS ended_state, archive.result, archive.code, archive.message, archive.traceback
FROM holdfast_blocker AS edge
LEFT JOIN holdfast_chain AS chain ON chain.id = edge.blocker_id
LEFT JOIN holdfast_job AS first ON first.id = edge.blocker_id
LEFT JOIN holdfast_job AS last ON last.id = coalesce(chain.step, edge.blocker_id)
LEFT JOIN holdfast_lease AS lease ON lease.job_id = last.id
LEFT JOIN holdfast_ready AS ready ON ready.job_id = last.id
LEFT JOIN holdfast_blocked AS blocked ON blocked.job_id = last.id
LEFT JOIN holdfast_archive AS archive ON archive.job_id = last.id
WHERE edge.waiter_id = ?
ORDER BY edge.position
