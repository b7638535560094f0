-- name: key
UPDATE holdfast_key SET expires_at = min(coalesce(expires_at, :end), :end) WHERE id = :id
