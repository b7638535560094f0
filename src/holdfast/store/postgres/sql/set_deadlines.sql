-- Enters jobs that have come to wait, and have a `start_by`, into the list of deadlines.
CREATE OR REPLACE FUNCTION {schema}.set_deadlines(p_ids uuid[], p_now timestamptz)
RETURNS void
LANGUAGE sql VOLATILE {hot}
AS $$
    INSERT INTO deadline (job_id, at)
    SELECT j.id, greatest(p_now, j.start_by) FROM job j WHERE j.id = ANY (p_ids) AND j.start_by IS NOT NULL ORDER BY j.id
    ON CONFLICT (job_id) DO UPDATE SET at = excluded.at
$$;
