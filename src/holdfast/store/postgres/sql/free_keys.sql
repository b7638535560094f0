-- Frees the keys of jobs, in key order, so that two batches cannot deadlock: those held while a job is live, and with p_windowed
-- those held for a window too.
--
-- A window that has passed may be in the hands of an open transaction, which makes the key its own: it is left to that. Should that be
-- undone, the row stays, and is taken by whoever comes next.
CREATE OR REPLACE FUNCTION {schema}.free_keys(p_ids uuid[], p_windowed boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    k record;
BEGIN
    FOR k IN SELECT j.id, j.scope, j.key, j.windowed FROM job j WHERE j.id = ANY (p_ids) AND j.key IS NOT NULL ORDER BY j.scope, j.key LOOP
        IF p_windowed AND k.windowed THEN
            PERFORM FROM unique_key u
            WHERE u.scope = k.scope AND u.key = k.key AND u.job_id = k.id AND u.until <= v_now
            FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND AND EXISTS (
                SELECT FROM unique_key u WHERE u.scope = k.scope AND u.key = k.key AND u.job_id = k.id AND u.until <= v_now
            );
        END IF;
        DELETE FROM unique_key u
        WHERE u.scope = k.scope AND u.key = k.key AND u.job_id = k.id AND (u.until IS NULL OR p_windowed);
    END LOOP;
END
$$;
