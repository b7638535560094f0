-- Tells the state of a job as of this statement.
CREATE OR REPLACE FUNCTION {schema}.where_is(p_job {schema}.job)
RETURNS TABLE (state text)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT 'blocked' FROM blocked WHERE job_id = p_job.id
    UNION ALL SELECT 'scheduled' FROM scheduled WHERE job_id = p_job.id
    UNION ALL SELECT 'ready' FROM ready WHERE lane = p_job.entry AND place = p_job.place AND job_id = p_job.id AND NOT moved
    UNION ALL SELECT 'ready' FROM ready WHERE moved AND job_id = p_job.id
    UNION ALL SELECT 'running' FROM lease WHERE job_id = p_job.id
    UNION ALL SELECT a.state FROM archive a WHERE a.job_id = p_job.id
$$;
