-- Prolongs leases by their own length. Never waits: one settle that has not committed must not hold up the whole batch.
CREATE OR REPLACE FUNCTION {schema}.extend(p_ids uuid[], p_tokens uuid[])
RETURNS TABLE (job_id uuid, token uuid, expires_at timestamptz, cancel boolean)
LANGUAGE sql VOLATILE {hot} {paired}
AS $$
    UPDATE lease SET expires_at = clock_timestamp() + lease_ms * interval '1 ms'
    WHERE job_id = ANY (ARRAY(
        SELECT l.job_id FROM lease l JOIN unnest(p_ids, p_tokens) AS s(job_id, token) USING (job_id, token)
        WHERE l.job_id = ANY (p_ids)
        ORDER BY l.job_id
        FOR NO KEY UPDATE OF l SKIP LOCKED
    ))
    RETURNING job_id, token, expires_at, cancel IS NOT NULL
$$;
