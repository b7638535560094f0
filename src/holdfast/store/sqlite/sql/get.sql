-- name: jobs
SELECT
    job.id, job.task, job.queue, job.priority, job.args, job.created_at, job.lease, job.policy, job.key, job.scope, job.tags,
    job.requires, entry.requires AS entry_requires, job.chain_id, job.trace, archive.continued_by,
    blocked.job_id IS NOT NULL AS is_blocked, coalesce(scheduled.run_at, blocked.run_at) AS run_at, ready.ready_at,
    deadline.start_by, archive.state AS ended_state, archive.finished_at, archive.late, archive.result, archive.code, archive.message AS error_message,
    archive.traceback,
    coalesce(lease.attempt, ready.attempt, scheduled.attempt, archive.attempt, 0) AS attempt,
    coalesce(lease.failures, ready.failures, scheduled.failures, archive.failures, 0) AS failures,
    coalesce(lease.worker_id, archive.worker_id) AS worker_id, worker.name AS worker_name,
    coalesce(lease.claimed_at, archive.claimed_at) AS claimed_at,
    lease.expires_at, lease.heartbeat_at, lease.cancel_requested,
    progress.percent, progress.step, progress.message,
    queue.name IS NOT NULL AS paused
FROM holdfast_job AS job
LEFT JOIN holdfast_lease AS lease ON lease.job_id = job.id
LEFT JOIN holdfast_ready AS ready ON ready.job_id = job.id
LEFT JOIN holdfast_scheduled AS scheduled ON scheduled.job_id = job.id
LEFT JOIN holdfast_blocked AS blocked ON blocked.job_id = job.id
LEFT JOIN holdfast_archive AS archive ON archive.job_id = job.id
LEFT JOIN holdfast_deadline AS deadline ON deadline.job_id = job.id
LEFT JOIN holdfast_progress AS progress ON progress.job_id = job.id
LEFT JOIN holdfast_worker AS worker ON worker.id = coalesce(lease.worker_id, archive.worker_id)
LEFT JOIN holdfast_queue AS queue ON queue.name = job.queue
LEFT JOIN holdfast_lane AS entry ON entry.lane = job.entry AND job.entry <> job.lane
WHERE job.id IN ({ids})

-- name: after
SELECT waiter_id, blocker_id, ended FROM holdfast_blocker WHERE waiter_id IN ({ids}) ORDER BY waiter_id, position
