-- name: write
INSERT OR REPLACE INTO holdfast_progress (job_id, percent, step, message) VALUES (?, ?, ?, ?)
