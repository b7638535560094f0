-- name: take_lock
-- Changes nothing; but whoever runs it is the one who writes, until the transaction ends.
DELETE FROM holdfast_meta WHERE one = 0

-- name: draw
UPDATE holdfast_meta SET number = number + ? WHERE one = 1 RETURNING number

-- name: advance
UPDATE holdfast_meta SET number = number + ?

-- name: log
INSERT INTO holdfast_event (job_id, number, event, at, state, attempt, actor, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: count_out
UPDATE holdfast_tally SET count = count - ? WHERE lane = ? AND state = ?

-- name: count_in
INSERT INTO holdfast_tally (lane, state, count) VALUES (?, ?, ?)
ON CONFLICT (lane, state) DO UPDATE SET count = count + excluded.count

-- name: worker_name
SELECT name FROM holdfast_worker WHERE id = ?
