-- Makes due jobs ready in `run_at` order, from the mark on.
CREATE OR REPLACE FUNCTION {schema}.promote(p_mark timestamptz, p_limit int)
RETURNS TABLE (queue text, promoted bigint, last_due timestamptz)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_retried bigint[];
    v_entered bigint[];
BEGIN
    FOR queue, promoted, last_due, v_retried, v_entered IN
    WITH due AS MATERIALIZED (
        SELECT s.ctid AS tid FROM scheduled s
        WHERE s.run_at >= p_mark AND s.run_at <= v_now
        ORDER BY s.run_at, s.job_id LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM scheduled WHERE scheduled.ctid = ANY (ARRAY(SELECT d.tid FROM due d)) RETURNING *
    ), moved AS MATERIALIZED (
        SELECT g.job_id, g.run_at, g.attempt, g.failures, j.entry, j.lane, j.queue
        FROM gone g
        CROSS JOIN LATERAL (SELECT * FROM job WHERE job.id = g.job_id LIMIT 1) j
        ORDER BY g.run_at, g.job_id
    ), entered AS (
        -- the delete above has given this transaction its id before the first place is drawn (decision 0002)
        INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved)
        SELECT line_of(m.entry, m.lane, m.failures), nextval('place'), m.job_id, v_now, m.attempt, m.failures, true
        FROM (SELECT * FROM moved ORDER BY run_at, job_id) m
    ), logged AS (
        INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
        SELECT m.job_id, v_now, m.attempt, 'promoted', 'ready', 'promoter', '' FROM moved m
    ), counted AS (
        INSERT INTO tally (lane, scheduled, ready) SELECT m.lane, -count(*), count(*) FROM moved m GROUP BY m.lane
    )
    SELECT m.queue, count(*), max(m.run_at), array_agg(m.lane) FILTER (WHERE m.failures > 0), array_agg(line_of(m.entry, m.lane, m.failures)) FILTER (WHERE m.entry <> m.lane)
    FROM moved m GROUP BY m.queue
    LOOP
        IF v_retried IS NOT NULL THEN
            PERFORM know_retries(v_retried);
        END IF;
        IF v_entered IS NOT NULL THEN
            PERFORM rouse(v_entered);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
