-- name: waiter
SELECT 1 FROM holdfast_blocker WHERE blocker_id = ? LIMIT 1
