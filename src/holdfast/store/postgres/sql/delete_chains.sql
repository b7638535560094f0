-- Removes chains with all their steps and everything about them, in whatever state; with p_cascade the chains they waited for too, and so
-- on. Returns what is gone. Refuses as a whole: HF001 (there is no such chain), HF002 (a live job outside needs it: chain and job).
--
-- Each chain is taken where it stands, so that from then on it cannot go on, and nobody can come to wait for it: who makes a waiter
-- holds the row of its last step, or waits for it here and then finds no chain. A step that was about to continue is waited for,
-- and the next one is taken too. Only when all are taken are those asked for who need one.
CREATE OR REPLACE FUNCTION {schema}.delete_chains(p_chains uuid[], p_cascade boolean, p_from text[])
RETURNS TABLE (chain uuid, job_id uuid)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_all uuid[] := '{{}}';
    v_found uuid[] := p_chains;
    v_steps uuid[];
    v_chain uuid;
    v_last uuid;
    v_refused record;
    j job;
    t record;
BEGIN
    WHILE cardinality(v_found) > 0 LOOP
        FOR v_chain IN SELECT f.id FROM unnest(v_found) AS f(id) ORDER BY f.id LOOP
            v_last := NULL;
            LOOP
                SELECT * INTO j FROM job WHERE job.id = coalesce((SELECT c.step FROM chain c WHERE c.id = v_chain), v_chain);
                EXIT WHEN NOT FOUND OR j.id = v_last OR coalesce(j.chain_id, j.id) <> v_chain;
                SELECT * INTO t FROM take(j, p_from);
                CONTINUE WHEN t.state IS NULL;  -- gone meanwhile
                PERFORM count_move(j.lane, t.state, NULL);
                v_last := j.id;
            END LOOP;
            IF v_last IS NULL AND v_chain = ANY (p_chains) THEN
                RAISE EXCEPTION USING ERRCODE = 'HF001', MESSAGE = v_chain::text;
            END IF;
        END LOOP;
        v_all := v_all || v_found;
        EXIT WHEN NOT p_cascade;
        v_found := ARRAY(
            SELECT DISTINCT b.chain_id FROM blocker b
            CROSS JOIN LATERAL (SELECT FROM job j WHERE j.id = b.chain_id LIMIT 1) j
            WHERE b.job_id = ANY (ARRAY(SELECT s.id FROM steps_of(v_found) s)) AND b.chain_id <> ALL (v_all)
            ORDER BY b.chain_id
        );
    END LOOP;

    SELECT n.chain, n.job_id INTO v_refused FROM needed_by(v_all, v_all) n;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'HF002', MESSAGE = concat_ws(' ', v_refused.chain, v_refused.job_id);
    END IF;

    v_steps := ARRAY(SELECT s.id FROM steps_of(v_all) s ORDER BY array_position(v_all, s.chain), s.id);
    RETURN QUERY SELECT s.chain, s.id FROM steps_of(v_all) s ORDER BY array_position(v_all, s.chain), s.id;
    WITH gone AS (
        DELETE FROM archive a WHERE a.job_id = ANY (v_steps) RETURNING a.lane, a.state
    )
    INSERT INTO tally (lane, succeeded) SELECT g.lane, -count(*) FROM gone g GROUP BY g.lane;  -- steps that have continued
    PERFORM clear_deadlines(v_steps);
    PERFORM forget(v_steps);
    DELETE FROM chain WHERE chain.id = ANY (v_all);
END
$$;
