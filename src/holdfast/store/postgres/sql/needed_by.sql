-- Finds a live job that waits for one of these chains, or will be handed its result, and is no step of a chain in p_inside.
CREATE OR REPLACE FUNCTION {schema}.needed_by(p_chains uuid[], p_inside uuid[])
RETURNS TABLE (chain uuid, job_id uuid)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT c.id, n.job_id
    FROM unnest(p_chains) WITH ORDINALITY AS c(id, n)
    CROSS JOIN LATERAL (
        -- OFFSET 0: else it may be looked for in the order of the jobs, among all edges there are
        SELECT b.job_id FROM (SELECT e.job_id FROM blocker e WHERE e.chain_id = c.id OFFSET 0) b
        CROSS JOIN LATERAL (SELECT coalesce(j.chain_id, j.id) AS chain FROM job j WHERE j.id = b.job_id LIMIT 1) j
        LEFT JOIN LATERAL (SELECT true AS ended FROM archive a WHERE a.job_id = b.job_id LIMIT 1) a ON true
        WHERE a.ended IS NULL AND j.chain <> ALL (p_inside)
        ORDER BY b.job_id LIMIT 1
    ) n
    ORDER BY c.n LIMIT 1
$$;
