-- Writes progress under the token.
CREATE OR REPLACE FUNCTION {schema}.progress(p_ids uuid[], p_tokens uuid[], p_percents float8[], p_steps text[], p_messages text[])
RETURNS TABLE (job_id uuid, late boolean)
LANGUAGE sql VOLATILE {hot}
AS $$
    WITH held AS MATERIALIZED (
        SELECT * FROM touch(p_ids, p_tokens)
    ), written AS (
        INSERT INTO progress (job_id, percent, step, message, at)
        SELECT u.job_id, u.percent, u.step, u.message, clock_timestamp()
        FROM unnest(p_ids, p_percents, p_steps, p_messages) AS u(job_id, percent, step, message)
        WHERE u.job_id = ANY (ARRAY(SELECT h.job_id FROM held h))
        ORDER BY u.job_id
        ON CONFLICT (job_id) DO UPDATE
        SET percent = excluded.percent, step = excluded.step, message = excluded.message, at = excluded.at
    )
    SELECT held.job_id, held.late FROM held
$$;
