-- Takes jobs that wait no longer off the list of deadlines. Never waits: whoever is dropping what is overdue has locked this before
-- the job, and deletes the row itself.
CREATE OR REPLACE FUNCTION {schema}.clear_deadlines(p_ids uuid[])
RETURNS void
LANGUAGE sql VOLATILE {hot}
AS $$
    DELETE FROM deadline WHERE job_id = ANY (ARRAY(SELECT d.job_id FROM deadline d WHERE d.job_id = ANY (p_ids) FOR UPDATE SKIP LOCKED))
$$;
