-- Returns which of the jobs about to be created must wait: those with a chain that has not ended well (or, under policy
-- `run`, has not ended). Their blockers are locked where they stand, so that none can end unseen before the edges are there.
CREATE OR REPLACE FUNCTION {schema}.open_waiters(p_ids uuid[], p_on_failure text[], p_edge_jobs uuid[], p_edge_chains uuid[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_unknown uuid;
BEGIN
    PERFORM lock_live(p_edge_chains);
    -- a job that is there already may have outlived the chains it waited for
    SELECT e.chain INTO v_unknown FROM unnest(p_edge_jobs, p_edge_chains) AS e(job_id, chain)
    WHERE e.chain <> ALL (p_ids) AND NOT EXISTS (SELECT FROM job j WHERE j.id = e.chain)
        AND NOT EXISTS (SELECT FROM job j WHERE j.id = e.job_id)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'HF001', MESSAGE = v_unknown::text;
    END IF;
    RETURN ARRAY(
        SELECT DISTINCT e.job_id
        FROM unnest(p_edge_jobs, p_edge_chains) AS e(job_id, chain)
        LEFT JOIN LATERAL (SELECT a.state FROM archive a WHERE a.job_id = e.chain LIMIT 1) a ON true
        WHERE a.state IS NULL OR (a.state <> 'succeeded' AND p_on_failure[array_position(p_ids, e.job_id)] <> 'run')
    );
END
$$;
