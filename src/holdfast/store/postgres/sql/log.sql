-- Appends lines to the logs of jobs under the token, in the order given.
CREATE OR REPLACE FUNCTION {schema}.log(
    p_ids uuid[], p_tokens uuid[], p_ages float8[], p_levels text[], p_loggers text[], p_messages text[], p_fields text[],
    p_lines uuid[]
)
RETURNS TABLE (job_id uuid, token uuid, late boolean)
LANGUAGE sql VOLATILE {hot} {paired}
AS $$
    WITH held AS MATERIALIZED (
        SELECT * FROM prove(p_ids, p_tokens)
    ), written AS (
        INSERT INTO log (job_id, at, attempt, level, logger, message, fields, line)
        SELECT h.job_id, clock_timestamp() - u.age * interval '1 s', h.attempt, u.level, u.logger, u.message, u.fields, u.line
        FROM unnest(p_ids, p_tokens, p_ages, p_levels, p_loggers, p_messages, p_fields, p_lines) WITH ORDINALITY
            AS u(job_id, token, age, level, logger, message, fields, line, n)
        JOIN held h USING (job_id, token)
        ORDER BY u.n
        ON CONFLICT (job_id, line) WHERE line IS NOT NULL DO NOTHING
    )
    SELECT held.job_id, held.token, held.late FROM held
$$;
