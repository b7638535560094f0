-- name: queue
DELETE FROM holdfast_queue WHERE name = ?
