-- name: attempts
SELECT
    attempt.job_id, job.task, job.queue, job.key, attempt.attempt, attempt.ended_at, attempt.event, attempt.code, attempt.message,
    attempt.traceback
FROM holdfast_attempt AS attempt
CROSS JOIN holdfast_job AS job ON job.id = attempt.job_id
WHERE attempt.ended_at >= ? AND attempt.code IS NOT NULL AND (attempt.ended_at, attempt.job_id, attempt.attempt) < (?, ?, ?)
ORDER BY attempt.ended_at DESC, attempt.job_id DESC, attempt.attempt DESC
LIMIT ?
