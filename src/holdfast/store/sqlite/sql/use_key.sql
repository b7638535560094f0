-- name: unnoted
SELECT 1 FROM holdfast_key WHERE id = :id AND (used_at IS NULL OR used_at <= :now - :noted)

-- name: key
UPDATE holdfast_key SET used_at = :now WHERE id = :id AND (used_at IS NULL OR used_at <= :now - :noted)
