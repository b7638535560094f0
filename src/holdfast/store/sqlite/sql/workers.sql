-- name: workers
SELECT id, name, info, registered_at FROM holdfast_worker ORDER BY registered_at DESC, id DESC
