-- Ends a blocked job as its policy says when one of the chains that just ended did not end well; false when all is well.
-- A chain that is gone was deleted while the waiter, made in a caller's transaction, could not be seen yet: that is no good end.
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
    SELECT c.id, CASE a.state WHEN 'failed' THEN 'failed' WHEN 'canceled' THEN 'was canceled' ELSE 'was deleted' END AS how INTO bad
    FROM unnest(p_chains) WITH ORDINALITY AS c(id, n)
    LEFT JOIN LATERAL chain_state(c.id) a ON true
    WHERE a.state IS DISTINCT FROM 'succeeded' ORDER BY c.n LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM blocked WHERE job_id = p_job.id;
    PERFORM finish(
        p_job, 'blocked', 0, 0, NULL, NULL,
        CASE WHEN v_fail THEN 'failed:blocker' ELSE 'canceled:blocker' END, CASE WHEN v_fail THEN 'failed' ELSE 'canceled' END,
        CASE WHEN v_fail THEN 'BLOCKER_FAILED' ELSE 'BLOCKER_CANCELED' END, format('it waited for job %s, which %s', bad.id, bad.how), NULL, NULL, 'store', v_now
    );
    RETURN true;
END
$$;
