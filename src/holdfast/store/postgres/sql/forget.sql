-- Deletes the records of jobs that are in no state any more.
CREATE OR REPLACE FUNCTION {schema}.forget(p_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    k record;
BEGIN
    FOR k IN SELECT j.id, j.scope, j.key FROM job j WHERE j.id = ANY (p_ids) AND j.key IS NOT NULL ORDER BY j.scope, j.key LOOP
        DELETE FROM unique_key u WHERE u.scope = k.scope AND u.key = k.key AND u.job_id = k.id;
    END LOOP;
    DELETE FROM attempt WHERE job_id = ANY (p_ids);
    DELETE FROM event WHERE job_id = ANY (p_ids);
    DELETE FROM part WHERE job_id = ANY (p_ids);
    DELETE FROM progress WHERE job_id = ANY (p_ids);
    DELETE FROM blocker WHERE job_id = ANY (p_ids);
    DELETE FROM job WHERE id = ANY (p_ids);
END
$$;
