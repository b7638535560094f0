-- name: known
SELECT queue FROM holdfast_lane UNION SELECT name FROM holdfast_queue ORDER BY 1

-- name: paused
SELECT name, paused_at, paused_by, reason FROM holdfast_queue
