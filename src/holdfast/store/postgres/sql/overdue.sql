-- Takes the deadlines that have passed off the list, oldest first from the mark on, and tells how long each job could wait; NULL:
-- it is gone, or was reopened.
CREATE OR REPLACE FUNCTION {schema}.overdue(p_mark timestamptz, p_limit int)
RETURNS TABLE (job_id uuid, at timestamptz, seconds float8)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH passed AS MATERIALIZED (
        SELECT d.ctid AS tid FROM deadline d
        WHERE d.at >= p_mark AND d.at <= v_now
        ORDER BY d.at LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM deadline WHERE deadline.ctid = ANY (ARRAY(SELECT p.tid FROM passed p)) RETURNING *
    )
    SELECT g.job_id, g.at, extract(epoch FROM j.start_by - j.created_at)::float8
    FROM gone g
    LEFT JOIN LATERAL (SELECT * FROM job WHERE job.id = g.job_id LIMIT 1) j ON true;
END
$$;
