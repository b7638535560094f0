-- Tells of each of the jobs about to be created whether it must wait: those with a chain that has not ended well (or, under policy
-- `run`, has not ended). Their blockers are locked where they stand, so that none can end unseen before the edges are there;
-- with p_doubt they are not, and whether one has is found out later (unblock.sql). So it is, too, where one cannot be locked in a
-- moment, because somebody's open transaction is about to end it: `doubt` tells.
--
-- Refuses what cannot be waited for: HF001 (there is no such job), HF004 (it is a later step: of which chain).
CREATE OR REPLACE FUNCTION {schema}.open_waiters(
    p_ids uuid[], p_chains uuid[], p_edge_jobs uuid[], p_edge_chains uuid[], p_edge_policies text[], p_doubt boolean,
    OUT waits boolean[], OUT doubt boolean
)
LANGUAGE plpgsql VOLATILE {hot} {impatient}
AS $$
#variable_conflict use_column
DECLARE
    v_near boolean[] := among(p_edge_chains, p_ids);
    v_steps uuid[] := ARRAY(SELECT u.id FROM unnest(p_ids, p_chains) AS u(id, chain) WHERE u.chain <> u.id);
    v_wrong record;
BEGIN
    doubt := p_doubt;
    IF NOT p_doubt THEN
        {read_committed}
        BEGIN
            PERFORM lock_live(p_edge_chains);
        EXCEPTION WHEN lock_not_available THEN
            doubt := true;
        END;
    END IF;
    -- a job that is there already may have outlived the chains it waited for
    SELECT e.chain AS id,
        coalesce(k.chain_id, (SELECT u.chain FROM unnest(p_ids, p_chains) AS u(id, chain) WHERE u.id = e.chain)) AS step_of
    INTO v_wrong
    FROM unnest(p_edge_jobs, p_edge_chains, v_near) AS e(job_id, chain, near)
    LEFT JOIN LATERAL (SELECT j.id, j.chain_id FROM job j WHERE j.id = e.chain LIMIT 1) k ON true
    LEFT JOIN LATERAL (SELECT true AS there FROM job j WHERE j.id = e.job_id LIMIT 1) w ON true
    WHERE CASE WHEN e.near THEN e.chain = ANY (v_steps) ELSE k.id IS NULL OR k.chain_id <> k.id END AND w.there IS NULL
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = CASE WHEN v_wrong.step_of IS NULL THEN 'HF001' ELSE 'HF004' END,
            MESSAGE = concat_ws(' ', v_wrong.id, v_wrong.step_of);
    END IF;
    waits := among(p_ids, ARRAY(
        SELECT e.job_id
        FROM unnest(p_edge_jobs, p_edge_chains, p_edge_policies) AS e(job_id, chain, on_failure)
        LEFT JOIN LATERAL chain_state(e.chain) a ON true
        WHERE a.state IS NULL OR (a.state <> 'succeeded' AND e.on_failure <> 'run')
    ));
END
$$;
