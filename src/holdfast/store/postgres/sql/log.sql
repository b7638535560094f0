-- Appends lines to the logs of jobs under the token, in the order given.
CREATE OR REPLACE FUNCTION {schema}.log(
    p_ids uuid[], p_tokens uuid[], p_ages float8[], p_levels text[], p_loggers text[], p_messages text[], p_fields text[]
)
RETURNS TABLE (job_id uuid, token uuid, late boolean)
LANGUAGE sql VOLATILE {hot} {paired}
AS $$
    WITH held AS MATERIALIZED (
        SELECT * FROM prove(p_ids, p_tokens)
    ), written AS (
        INSERT INTO log (job_id, at, attempt, level, logger, message, fields)
        SELECT h.job_id, clock_timestamp() - u.age * interval '1 s', h.attempt, u.level, u.logger, u.message, u.fields
        FROM unnest(p_ids, p_tokens, p_ages, p_levels, p_loggers, p_messages, p_fields) WITH ORDINALITY
            AS u(job_id, token, age, level, logger, message, fields, n)
        JOIN held h USING (job_id, token)
        ORDER BY u.n
    )
    SELECT held.job_id, held.token, held.late FROM held
$$;
