-- Settles waiters whose chains have ended, or vanished, without their being seen, or while they could not be had: made in a caller's
-- transaction, or waiting for a chain that ended in one, or held by one. A doubt is about all who wait for its chain.
--
-- For each doubt the chain is locked where it stands, waiting for a settle that is under way. What has ended by then is resolved here.
-- What has not ends after this transaction, and who ends it looks for waiters in a later statement, which sees the edge: it
-- was committed before this began. So the doubt can go either way. A chain that somebody's open transaction holds keeps its doubts
-- for another time, behind all the others: however many are held, and for however long, those that can be decided come to their turn.
CREATE OR REPLACE FUNCTION {schema}.unblock(p_limit int)
RETURNS int
LANGUAGE plpgsql VOLATILE {hot} {impatient}
AS $$
#variable_conflict use_column
DECLARE
    v_jobs uuid[];
    v_chains uuid[];
    v_chain uuid;
    v_seen uuid[] := '{{}}';
    v_gone int;
BEGIN
    SELECT array_agg(d.job_id), array_agg(d.chain_id) INTO v_jobs, v_chains
    FROM (SELECT * FROM doubt ORDER BY doubt.turn LIMIT p_limit FOR UPDATE SKIP LOCKED) d;
    IF v_jobs IS NULL THEN
        RETURN 0;
    END IF;
    FOR v_chain IN SELECT DISTINCT c.id FROM unnest(v_chains) AS c(id) ORDER BY c.id LOOP
        IF lock_live_now(v_chain) THEN
            v_seen := v_seen || v_chain;
        END IF;
    END LOOP;
    DELETE FROM doubt d WHERE d.job_id = ANY (v_jobs) AND d.chain_id = ANY (v_seen);
    UPDATE doubt d SET turn = DEFAULT WHERE d.job_id = ANY (v_jobs) AND d.chain_id = ANY (v_chains) AND d.chain_id <> ALL (v_seen);
    SELECT r.gone INTO v_gone FROM resolve(ARRAY(
        SELECT c.id FROM unnest(v_seen) AS c(id)
        LEFT JOIN LATERAL chain_state(c.id) a ON true
        LEFT JOIN LATERAL (SELECT true AS there FROM job j WHERE j.id = c.id LIMIT 1) j ON true
        WHERE a.state IS NOT NULL OR j.there IS NULL
    )) r;
    RETURN v_gone;
END
$$;
