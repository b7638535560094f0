-- Ends one attempt that succeeded, as settle.sql ends many, statement by statement: its plans take longer to start than these to run.
-- Answers `applied`, or `freed` where waiters may run now. NULL: nothing was done, for the lease has lapsed or is gone, and settle.sql has to
-- say what that means.
CREATE OR REPLACE FUNCTION {schema}.settle_one(p_id uuid, p_token uuid, p_result text) RETURNS text
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_lane bigint;
    v_claimed_at timestamptz;
    v_worker int;
    v_attempt int;
    v_failures int;
    v_keyed boolean;
    v_chain uuid;
    v_freed int;
BEGIN
    {read_committed}
    -- The transaction's id before its clock, as in settle.sql.
    PERFORM pg_current_xact_id();
    v_now := clock_timestamp();
    DELETE FROM lease l WHERE l.job_id = p_id AND l.token = p_token AND l.expires_at > v_now
    RETURNING l.lane, l.claimed_at, l.worker, l.attempt, l.failures, l.keyed, l.chain
    INTO v_lane, v_claimed_at, v_worker, v_attempt, v_failures, v_keyed, v_chain;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO archive (job_id, lane, state, finished_at, claimed_at, token, worker, attempt, failures, late, result, chain)
    VALUES (p_id, v_lane, 'succeeded', v_now, v_claimed_at, p_token, v_worker, v_attempt, v_failures, false, p_result, v_chain);
    INSERT INTO tally (lane, running, succeeded) VALUES (v_lane, -1, 1);
    IF v_keyed OR v_chain <> p_id THEN
        PERFORM free_keys(array_remove(ARRAY[CASE WHEN v_keyed THEN p_id END, CASE WHEN v_chain <> p_id THEN v_chain END], NULL));
    END IF;
    -- by a statement of its own, which sees what committed meanwhile (resolve.sql)
    IF EXISTS (SELECT FROM blocker b WHERE b.chain_id = coalesce(v_chain, p_id) AND NOT b.ended) THEN
        SELECT r.freed INTO v_freed FROM resolve(ARRAY[coalesce(v_chain, p_id)]) r;
        IF v_freed > 0 THEN
            RETURN 'freed';
        END IF;
    END IF;
    RETURN 'applied';
END
$$;
