-- Writes stages entered and left into the event log under the token, in the order given.
CREATE OR REPLACE FUNCTION {schema}.mark(p_ids uuid[], p_tokens uuid[], p_ages float8[], p_events text[], p_names text[])
RETURNS TABLE (job_id uuid, token uuid, late boolean)
LANGUAGE sql VOLATILE {hot} {paired}
AS $$
    WITH held AS MATERIALIZED (
        SELECT p.*, (SELECT w.name FROM worker w WHERE w.no = p.worker) AS actor FROM prove(p_ids, p_tokens) p
    ), written AS (
        INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
        SELECT h.job_id, clock_timestamp() - u.age * interval '1 s', h.attempt, u.event, 'running', h.actor, u.name
        FROM unnest(p_ids, p_tokens, p_ages, p_events, p_names) WITH ORDINALITY AS u(job_id, token, age, event, name, n)
        JOIN held h USING (job_id, token)
        ORDER BY u.n
    )
    SELECT held.job_id, held.token, held.late FROM held
$$;
