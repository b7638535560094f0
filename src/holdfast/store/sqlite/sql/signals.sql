-- name: data
SELECT data FROM holdfast_signal WHERE name = ?
