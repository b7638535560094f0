-- Proves leases current under their tokens and holds them in place until the transaction ends, prolonging nothing. A lease may
-- be asked for several times. Heartbeats do not wait for this; a settle, cancel or reap does.
CREATE OR REPLACE FUNCTION {schema}.prove(p_ids uuid[], p_tokens uuid[])
RETURNS TABLE (job_id uuid, token uuid, attempt int, worker int, late boolean)
LANGUAGE plpgsql VOLATILE {hot} {paired}
AS $$
#variable_conflict use_column
BEGIN
    {read_committed}
    RETURN QUERY
    SELECT l.job_id, l.token, l.attempt, l.worker, l.expires_at <= clock_timestamp()
    FROM lease l JOIN (SELECT DISTINCT s.job_id, s.token FROM unnest(p_ids, p_tokens) AS s(job_id, token)) s USING (job_id, token)
    WHERE l.job_id = ANY (p_ids)
    ORDER BY l.job_id
    FOR KEY SHARE OF l;
END
$$;
