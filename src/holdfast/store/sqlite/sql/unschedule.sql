-- name: forget
DELETE FROM holdfast_schedule WHERE name = ?
