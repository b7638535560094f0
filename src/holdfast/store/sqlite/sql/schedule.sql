-- name: define
INSERT INTO holdfast_schedule (name, task, cron, timezone, spec, next_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    task = excluded.task, cron = excluded.cron, timezone = excluded.timezone, spec = excluded.spec, next_at = excluded.next_at,
    last_at = NULL, last_job = NULL
WHERE (task, cron, timezone, spec) <> (excluded.task, excluded.cron, excluded.timezone, excluded.spec)
