-- name: figures
SELECT at, queue, task, event, code, count, waited, ran, waits, runs
FROM holdfast_figure
WHERE grain = ? AND coalesce(at, 0) >= ? AND (task = '') = ?
ORDER BY coalesce(at, 0), queue, task, event, code
