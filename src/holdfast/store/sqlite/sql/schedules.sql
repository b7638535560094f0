-- name: schedules
SELECT name, task, cron, timezone, spec, next_at, last_at, last_job FROM holdfast_schedule ORDER BY name
