-- Emits a signal, once, and wakes the jobs that wait for it. The first row tells whether it was emitted here; those after it
-- name the jobs. For the turns taken on the name see suspend.sql.
--
-- A job that an open transaction is replacing may wait for it: that is not waited for beyond a moment (55P03), for who comes to wait for
-- this signal, and is being settled, waits for us.
CREATE OR REPLACE FUNCTION {schema}.emit(p_name text, p_data text, p_actor text)
RETURNS TABLE (first boolean, job_id uuid, queue text)
LANGUAGE plpgsql VOLATILE {hot} {impatient}
AS $$
#variable_conflict use_column
BEGIN
    {read_committed}
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema_text}.signal.' || p_name, 0));
    INSERT INTO signal (name, data, emitted_at, emitted_by) VALUES (p_name, p_data, clock_timestamp(), p_actor) ON CONFLICT DO NOTHING;
    first := FOUND;
    RETURN NEXT;
    IF first THEN
        RETURN QUERY SELECT true, w.job_id, w.queue FROM wake(ARRAY[p_name], p_actor) w;
    END IF;
END
$$;
