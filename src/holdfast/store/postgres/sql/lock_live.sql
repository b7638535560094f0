-- Makes sure that none of these chains can end or vanish before this transaction does: after it, each is either locked where it stands
-- or visible in the archive to the next statement.
--
-- A chain stands where its last step stands, and a step that is live is the last. So it is enough to lock the live row of the step
-- that the chain's row names: whoever settles, continues, cancels or deletes it must delete that row, and waits. The row found
-- may be one that was deleted meanwhile: then the step is looked for again, for it may have moved; and when it is archived and has
-- continued, the chain's row is read again, by a statement that sees the next step.
--
-- FOR KEY SHARE: heartbeats go on. Who calls says how long an open transaction that is about to end one is waited for (55P03).
CREATE OR REPLACE FUNCTION {schema}.lock_live(p_chains uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_chain uuid;
    v_next uuid;
    j job;
BEGIN
    FOR v_chain IN SELECT DISTINCT c.id FROM unnest(p_chains) AS c(id) ORDER BY c.id LOOP
        FOR pass IN 1..1000 LOOP
            SELECT * INTO j FROM job WHERE job.id = coalesce((SELECT c.step FROM chain c WHERE c.id = v_chain), v_chain);
            EXIT WHEN NOT FOUND;  -- there is no such chain, or its next step is about to be made by this very transaction
            PERFORM FROM blocked b WHERE b.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM scheduled s WHERE s.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM ready r WHERE r.lane = j.entry AND r.place = j.place AND r.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM ready r WHERE r.moved AND r.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM lease l WHERE l.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            SELECT a.continued_by INTO v_next FROM archive a WHERE a.job_id = j.id FOR KEY SHARE;  -- nor may it be deleted or pruned
            EXIT WHEN FOUND AND v_next IS NULL;
        END LOOP;
    END LOOP;
END
$$;
