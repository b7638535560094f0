-- name: known
SELECT count, waited, ran, waits, runs
FROM holdfast_figure
WHERE grain = ? AND coalesce(at, 0) = coalesce(?, 0) AND queue = ? AND task = ? AND event = ? AND code = ?

-- name: figure
INSERT INTO holdfast_figure (grain, at, queue, task, event, code, count, waited, ran, waits, runs)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (grain, coalesce(at, 0), queue, task, event, code) DO UPDATE SET
    count = excluded.count, waited = excluded.waited, ran = excluded.ran, waits = excluded.waits, runs = excluded.runs
