-- Proves leases current under their tokens and prolongs them; what every fenced write that leaves a job running begins with.
CREATE OR REPLACE FUNCTION {schema}.touch(p_ids uuid[], p_tokens uuid[])
RETURNS TABLE (job_id uuid, late boolean)
LANGUAGE sql VOLATILE {hot} {paired}
AS $$
    WITH was AS MATERIALIZED (
        SELECT l.job_id, l.expires_at <= clock_timestamp() AS late
        FROM lease l JOIN unnest(p_ids, p_tokens) AS s(job_id, token) USING (job_id, token)
        WHERE l.job_id = ANY (p_ids)
        ORDER BY l.job_id
        FOR NO KEY UPDATE OF l
    ), held AS (
        UPDATE lease SET expires_at = clock_timestamp() + lease_ms * interval '1 ms'
        WHERE job_id = ANY (ARRAY(SELECT w.job_id FROM was w))
    )
    SELECT was.job_id, was.late FROM was
$$;
