-- name: signal
INSERT INTO holdfast_signal (name, data, emitted_at, emitted_by) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING

-- name: emitted
SELECT 1 FROM holdfast_signal WHERE name = ?

-- name: suspended
SELECT suspended.job_id, job.queue
FROM holdfast_scheduled AS suspended
CROSS JOIN holdfast_job AS job ON job.id = suspended.job_id
WHERE suspended.signal = ?
ORDER BY suspended.job_id
