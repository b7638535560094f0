-- Writes progress under the token; the lease is prolonged by the same statement that proves it current.
CREATE OR REPLACE FUNCTION {schema}.progress(p_ids uuid[], p_tokens uuid[], p_percents float8[], p_steps text[], p_messages text[])
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
        RETURNING lease.job_id
    ), written AS (
        INSERT INTO progress (job_id, percent, step, message, at)
        SELECT u.job_id, u.percent, u.step, u.message, clock_timestamp()
        FROM unnest(p_ids, p_percents, p_steps, p_messages) AS u(job_id, percent, step, message)
        WHERE u.job_id = ANY (ARRAY(SELECT h.job_id FROM held h))
        ORDER BY u.job_id
        ON CONFLICT (job_id) DO UPDATE
        SET percent = excluded.percent, step = excluded.step, message = excluded.message, at = excluded.at
    )
    SELECT was.job_id, was.late FROM was
$$;
