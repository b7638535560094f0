-- Writes parts of jobs under the token.
CREATE OR REPLACE FUNCTION {schema}.checkpoint(
    p_ids uuid[], p_tokens uuid[], p_names text[], p_states text[], p_done float8[], p_totals float8[], p_data text[], p_errors text[]
)
RETURNS TABLE (job_id uuid, late boolean)
LANGUAGE sql VOLATILE {hot}
AS $$
    WITH held AS MATERIALIZED (
        SELECT * FROM touch(p_ids, p_tokens)
    ), written AS (
        INSERT INTO part (job_id, name, state, done, total, data, error, started_at, completed_at)
        SELECT u.job_id, u.name, u.state, u.done, u.total, u.data, u.error,
            CASE WHEN u.state <> 'pending' THEN clock_timestamp() END,
            CASE WHEN u.state IN ('completed', 'failed', 'skipped') THEN clock_timestamp() END
        FROM unnest(p_ids, p_names, p_states, p_done, p_totals, p_data, p_errors) WITH ORDINALITY
            AS u(job_id, name, state, done, total, data, error, n)
        WHERE u.job_id = ANY (ARRAY(SELECT h.job_id FROM held h))
        ORDER BY u.n
        ON CONFLICT (job_id, name) DO UPDATE
        SET state = excluded.state, done = excluded.done, total = excluded.total, data = excluded.data, error = excluded.error,
            started_at = coalesce(part.started_at, excluded.started_at),
            completed_at = CASE WHEN excluded.completed_at IS NOT NULL THEN
                CASE WHEN part.state = excluded.state THEN part.completed_at ELSE excluded.completed_at END END
    )
    SELECT held.job_id, held.late FROM held
$$;
