-- Ends live jobs from outside, as succeeded with a result or as failed with an error. A lease it ends is dead at once.
CREATE OR REPLACE FUNCTION {schema}.end_outside(
    p_ids uuid[], p_from text[], p_event text, p_state text, p_results text[], p_codes text[], p_messages text[], p_tracebacks text[],
    p_actor text
)
RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_ended uuid[] := '{{}}';
    n int;
    j job;
    t record;
BEGIN
    FOR j IN SELECT * FROM job WHERE job.id = ANY (p_ids) ORDER BY job.id LOOP
        SELECT * INTO t FROM take(j, p_from);
        CONTINUE WHEN t.state IS NULL;
        job_id := j.id;
        answer := 'refused';
        IF t.taken THEN
            n := array_position(p_ids, j.id);
            PERFORM finish(
                j, t.state, t.attempt, t.failures, t.worker, t.claimed_at, p_event, p_state, p_codes[n], p_messages[n],
                p_tracebacks[n], p_results[n], p_actor, v_now
            );
            v_ended := v_ended || coalesce(j.chain_id, j.id);
            answer := 'done';
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM resolve(v_ended);
END
$$;
