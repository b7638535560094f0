-- Prolongs leases by their own length. Never waits: one settle that has not committed must not hold up the whole batch.
CREATE OR REPLACE FUNCTION {schema}.extend(p_ids uuid[], p_tokens uuid[])
RETURNS TABLE (job_id uuid, expires_at timestamptz, cancel boolean)
LANGUAGE sql VOLATILE {hot}
AS $$
    UPDATE lease SET expires_at = clock_timestamp() + lease_ms * interval '1 ms'
    WHERE job_id = ANY (ARRAY(
        SELECT l.job_id FROM lease l
        WHERE l.job_id = ANY (p_ids) AND l.token = ANY (p_tokens)
        ORDER BY l.job_id
        FOR NO KEY UPDATE SKIP LOCKED
    )) AND token = ANY (p_tokens)
    RETURNING job_id, expires_at, cancel IS NOT NULL
$$;
