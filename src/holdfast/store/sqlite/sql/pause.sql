-- name: queue
INSERT INTO holdfast_queue (name, paused_at, paused_by, reason) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET paused_by = excluded.paused_by, reason = excluded.reason
