-- Says that the expiry of these leases is not the jobs' fault.
CREATE OR REPLACE FUNCTION {schema}.flag_free(p_ids uuid[], p_tokens uuid[])
RETURNS TABLE (job_id uuid, late boolean)
LANGUAGE sql VOLATILE {hot} {paired}
AS $$
    UPDATE lease SET free = true
    WHERE job_id = ANY (ARRAY(
        SELECT l.job_id FROM lease l JOIN unnest(p_ids, p_tokens) AS s(job_id, token) USING (job_id, token)
        WHERE l.job_id = ANY (p_ids)
        ORDER BY l.job_id
        FOR NO KEY UPDATE OF l
    ))
    RETURNING job_id, expires_at <= clock_timestamp()
$$;
