-- Ends a blocked job as its policy says when one of the chains that just ended did not end well; false when all is well.
CREATE OR REPLACE FUNCTION {schema}.blocker_ended_badly(p_job {schema}.job, p_blocked {schema}.blocked, p_chains uuid[])
RETURNS boolean
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_fail boolean := p_blocked.on_failure = 'fail';
    bad record;
BEGIN
    IF p_blocked.on_failure = 'run' THEN
        RETURN false;
    END IF;
    SELECT c.id, a.state INTO bad
    FROM unnest(p_chains) WITH ORDINALITY AS c(id, n)
    CROSS JOIN LATERAL (SELECT state FROM archive WHERE job_id = c.id LIMIT 1) a
    WHERE a.state <> 'succeeded' ORDER BY c.n LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM blocked WHERE job_id = p_job.id;
    PERFORM finish(
        p_job, 'blocked', 0, 0, NULL, NULL,
        CASE WHEN v_fail THEN 'failed:blocker' ELSE 'canceled:blocker' END, CASE WHEN v_fail THEN 'failed' ELSE 'canceled' END,
        CASE WHEN v_fail THEN 'BLOCKER_FAILED' ELSE 'BLOCKER_CANCELED' END, format('blocker %s %s', bad.id, bad.state), NULL, NULL, 'store', v_now
    );
    RETURN true;
END
$$;
