-- name: line
INSERT INTO holdfast_audit (at, actor, action, targets, count, detail) VALUES (?, ?, ?, ?, ?, ?)
