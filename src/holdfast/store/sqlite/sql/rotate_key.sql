-- name: old
UPDATE holdfast_key SET expires_at = min(coalesce(expires_at, :end), :end)
WHERE id = :id AND (
    (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now))
    OR EXISTS (SELECT 1 FROM holdfast_key WHERE id = :new AND digest = :digest)  -- asked for again
)
