-- Locks the ready jobs that a claim may take from a fifo lane, which is alone in its call, and its front: one claimer at a time, and up
-- to the first job that somebody else has in hand or that is of a task this worker does not know. Nothing passes such a job.
--
-- Nobody is waited for who may stay open for long: a caller's transaction that replaces a job of the lane would stop the claims from all
-- others. So the rows are read first and then locked as far as they can be had. One that is there still, and could not be had, is where
-- the line stops; one that has gone meanwhile is no obstacle. As claimers wait for none but each other here, they do so briefly.
CREATE OR REPLACE FUNCTION {schema}.claim_fifo(p_lanes bigint[], p_marks bigint[], p_limit int, p_tasks text[], p_paused bigint[])
RETURNS tid[]
LANGUAGE plpgsql VOLATILE {hot} {impatient}
AS $$
#variable_conflict use_column
DECLARE
    v_line tid[];
    v_held tid[];
BEGIN
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended('{schema_text}.fifo', abs(p_lanes[1])));
    EXCEPTION WHEN lock_not_available THEN
        RETURN '{{}}';
    END;
    v_line := ARRAY(
        SELECT r.tid
        FROM unnest(p_lanes, p_marks) AS l(lane, mark)
        CROSS JOIN LATERAL (
            SELECT ready.ctid AS tid FROM ready
            WHERE ready.lane = l.lane AND ready.place >= l.mark
            ORDER BY ready.place LIMIT p_limit
        ) r
        WHERE p_paused IS NULL OR abs(l.lane) <> ALL (p_paused)
        LIMIT p_limit
    );
    v_held := ARRAY(SELECT ready.ctid FROM ready WHERE ready.ctid = ANY (v_line) FOR UPDATE SKIP LOCKED);
    RETURN ARRAY(
        SELECT t.tid FROM (
            SELECT r.ctid AS tid, bool_and(r.ctid = ANY (v_held) AND j.task = ANY (p_tasks)) OVER (ORDER BY r.lane > 0, r.place) AS free
            FROM ready r
            CROSS JOIN LATERAL (SELECT task FROM job WHERE job.id = r.job_id LIMIT 1) j
            WHERE r.ctid = ANY (v_line)
        ) t WHERE t.free
    );
END
$$;
