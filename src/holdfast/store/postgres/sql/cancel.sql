-- Ends waiting jobs as canceled and asks running ones to stop. p_from: where a cancel ends the job at once.
CREATE OR REPLACE FUNCTION {schema}.cancel(p_ids uuid[], p_from text[], p_actor text, p_code text, p_message text)
RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_ended uuid[] := '{{}}';
    j job;
    t record;
    held record;
BEGIN
    FOR j IN SELECT * FROM job WHERE job.id = ANY (p_ids) ORDER BY job.id LOOP
        job_id := j.id;
        LOOP
            SELECT * INTO t FROM take(j, p_from);
            answer := CASE WHEN t.state IS NULL THEN 'not_found' WHEN t.taken THEN 'done' ELSE 'refused' END;
            EXIT WHEN t.state IS DISTINCT FROM 'running';
            SELECT l.attempt, l.cancel INTO held FROM lease l WHERE l.job_id = j.id FOR NO KEY UPDATE;
            CONTINUE WHEN NOT FOUND;  -- settled in between: it stands elsewhere now
            answer := 'requested before';
            IF held.cancel IS NULL THEN
                answer := 'requested';
                UPDATE lease l SET cancel = p_message WHERE l.job_id = j.id;
                INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
                VALUES (j.id, v_now, held.attempt, 'cancel', 'running', p_actor, p_message);
            END IF;
            EXIT;
        END LOOP;
        IF t.taken THEN
            PERFORM finish(j, t.state, t.attempt, t.failures, NULL, NULL, 'cancel', 'canceled', p_code, p_message, NULL, NULL, p_actor, v_now);
            v_ended := v_ended || coalesce(j.chain_id, j.id);
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM resolve(v_ended);
END
$$;
