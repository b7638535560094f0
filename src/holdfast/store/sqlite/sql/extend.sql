-- name: held
SELECT expires_at, length FROM holdfast_lease WHERE job_id = ? AND token = ?

-- name: lease
UPDATE holdfast_lease SET expires_at = ?, heartbeat_at = ? WHERE job_id = ?

-- name: lengths
-- Of many leases at once, in their order: how long each is, null where the token is not current; and where a cancel was asked for.
SELECT json_group_array(lease.length), json_group_array(known.key) FILTER (WHERE lease.cancel_requested)
FROM json_each(:places) AS known
LEFT JOIN holdfast_lease AS lease ON lease.job_id = substr(:ids, 16 * known.key + 1, 16)
    AND lease.token = substr(:tokens, 16 * known.key + 1, 16)

-- name: leases
UPDATE holdfast_lease SET expires_at = :now + length, heartbeat_at = :now
FROM json_each(:places) AS known
WHERE job_id = substr(:ids, 16 * known.key + 1, 16) AND token = substr(:tokens, 16 * known.key + 1, 16)
