-- name: key
UPDATE holdfast_key
SET revoked_by = iif(revoked_at IS NULL, :by, revoked_by), revoked_at = coalesce(revoked_at, :now)
WHERE id = :id
