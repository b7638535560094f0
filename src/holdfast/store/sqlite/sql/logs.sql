-- name: lines
SELECT number, at, attempt, level, logger, message, fields
FROM holdfast_log
WHERE job_id = ? AND number > ?
ORDER BY number
LIMIT ?
