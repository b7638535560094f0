-- Makes the jobs ready that wait for these signals.
CREATE OR REPLACE FUNCTION {schema}.wake(p_signals text[], p_actor text)
RETURNS TABLE (job_id uuid, queue text)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_lane bigint;
    v_entry bigint;
    v_entered bigint[];
    v_failures int;
    v_retried bigint[];
BEGIN
    -- The transaction's id before its clock and its places: the claimers' marks rely on it.
    PERFORM pg_current_xact_id();
    v_now := clock_timestamp();
    FOR job_id, queue, v_lane, v_entry, v_failures IN
    WITH gone AS (
        DELETE FROM scheduled s WHERE s.signal = ANY (p_signals) AND s.signal IS NOT NULL RETURNING *
    ), moved AS MATERIALIZED (
        SELECT g.job_id, g.attempt, g.failures, j.entry, j.lane, j.queue
        FROM gone g
        CROSS JOIN LATERAL (SELECT * FROM job WHERE job.id = g.job_id LIMIT 1) j
        ORDER BY g.job_id
    ), entered AS (
        INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved)
        SELECT line_of(m.entry, m.lane, m.failures), nextval('place'), m.job_id, v_now, m.attempt, m.failures, true
        FROM (SELECT * FROM moved ORDER BY job_id) m
    ), logged AS (
        INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
        SELECT m.job_id, v_now, m.attempt, 'woken', 'ready', p_actor, '' FROM moved m
    ), counted AS (
        INSERT INTO tally (lane, scheduled, ready) SELECT m.lane, -count(*), count(*) FROM moved m GROUP BY m.lane
    )
    SELECT m.job_id, m.queue, m.lane, m.entry, m.failures FROM moved m ORDER BY m.job_id
    LOOP
        IF v_failures > 0 THEN
            v_retried := v_retried || v_lane;
        END IF;
        IF v_entry <> v_lane THEN
            v_entered := v_entered || line_of(v_entry, v_lane, v_failures);
        END IF;
        RETURN NEXT;
    END LOOP;
    IF v_retried IS NOT NULL THEN
        PERFORM know_retries(v_retried);
    END IF;
    IF v_entered IS NOT NULL THEN
        PERFORM rouse(v_entered);
    END IF;
END
$$;
