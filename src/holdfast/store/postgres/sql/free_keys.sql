-- Frees the keys of jobs, in key order, so that two batches cannot deadlock: those held while a job is live, and with p_windowed
-- those held for a window too.
CREATE OR REPLACE FUNCTION {schema}.free_keys(p_ids uuid[], p_windowed boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    k record;
BEGIN
    FOR k IN SELECT j.id, j.scope, j.key FROM job j WHERE j.id = ANY (p_ids) AND j.key IS NOT NULL ORDER BY j.scope, j.key LOOP
        DELETE FROM unique_key u
        WHERE u.scope = k.scope AND u.key = k.key AND u.job_id = k.id AND (u.until IS NULL OR p_windowed);
    END LOOP;
END
$$;
