-- Deletes the records of jobs that are in no state any more.
CREATE OR REPLACE FUNCTION {schema}.forget(p_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
BEGIN
    PERFORM free_keys(p_ids, true);
    DELETE FROM attempt WHERE job_id = ANY (p_ids);
    DELETE FROM event WHERE job_id = ANY (p_ids);
    DELETE FROM log WHERE job_id = ANY (p_ids);
    DELETE FROM part WHERE job_id = ANY (p_ids);
    DELETE FROM progress WHERE job_id = ANY (p_ids);
    DELETE FROM blocker WHERE job_id = ANY (p_ids);
    DELETE FROM job WHERE id = ANY (p_ids);
END
$$;
