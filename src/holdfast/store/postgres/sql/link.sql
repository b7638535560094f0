-- Makes the next steps of archived steps the last ones of their chains, and returns the chains. A plain job becomes a chain thereby.
--
-- Before the next steps are created, so that a waiter among them that waits for one of these chains finds it going on. Nobody
-- else writes the row of a chain: who continues it has just deleted the lease of its last step.
CREATE OR REPLACE FUNCTION {schema}.link(p_ids uuid[])
RETURNS TABLE (job_id uuid, chain uuid)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO chain (id, step, steps)
    SELECT a.chain, a.continued_by, 2 FROM archive a WHERE a.job_id = ANY (p_ids) ORDER BY a.chain
    ON CONFLICT (id) DO UPDATE SET step = excluded.step, steps = chain.steps + 1;
    UPDATE job SET chain_id = job.id WHERE job.id = ANY (p_ids) AND job.chain_id IS NULL;
    RETURN QUERY SELECT a.job_id, a.chain FROM archive a WHERE a.job_id = ANY (p_ids);
END
$$;
