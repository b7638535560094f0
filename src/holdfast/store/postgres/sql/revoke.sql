-- Disables a worker and ends every attempt of it as p_event says. Returns the jobs that wait again; NULL: there is no such worker.
-- What is being settled at this moment is waited for.
CREATE OR REPLACE FUNCTION {schema}.revoke(p_worker uuid, p_actor text, p_event text, p_state text, p_code text, p_message text)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_no int;
    v_ids uuid[];
    v_tokens uuid[];
    v_failures int[];
    v_all int[];
    v_canceled uuid[];
BEGIN
    {read_committed}
    UPDATE worker SET disabled_at = coalesce(disabled_at, clock_timestamp()), disabled_by = p_actor WHERE worker.id = p_worker
    RETURNING worker.no INTO v_no;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(l.job_id), array_agg(l.token), array_agg(l.failures) INTO v_ids, v_tokens, v_failures
    FROM (SELECT h.job_id, h.token, h.failures FROM lease h WHERE h.worker = v_no ORDER BY h.job_id FOR UPDATE) l;
    IF v_ids IS NULL THEN
        RETURN '{{}}';
    END IF;
    v_all := ARRAY[cardinality(v_ids)];
    v_canceled := ARRAY(
        SELECT s.job_id FROM settle(
            false, v_ids, v_tokens, array_fill(p_event, v_all), array_fill(p_state, v_all), v_failures, array_fill(true, v_all),
            array_fill(0::float8, v_all), NULL, NULL, array_fill(p_code, v_all), array_fill(p_message, v_all), NULL, NULL, NULL,
            p_actor
        ) s
        WHERE s.answer = 'canceled'
    );
    RETURN ARRAY(SELECT i.id FROM unnest(v_ids) AS i(id) WHERE i.id <> ALL (v_canceled) ORDER BY i.id);
END
$$;
