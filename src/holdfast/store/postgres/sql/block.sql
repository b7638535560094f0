-- Adds the edges of newly made jobs, and the rows of those that must wait. Chains that have ended already, and badly, act at once.
--
-- The edges of a job that must wait are all entered as open, and those whose chain has ended are resolved by the one way there is:
-- where nothing is locked (p_doubt) a chain may have ended between the statement that said so and this one.
--
-- With p_doubt nothing is resolved here. It would lock and settle whoever else waits for these chains, for as long as the caller's
-- transaction is open. The edges are entered as doubts, and who sweeps them after the commit decides (unblock.sql).
CREATE OR REPLACE FUNCTION {schema}.block(
    p_made uuid[], p_blocked uuid[], p_edge_jobs uuid[], p_edge_positions int[], p_edge_chains uuid[], p_edge_policies text[],
    p_doubt boolean
)
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_waits boolean[] := among(p_edge_jobs, p_blocked);
    v_made boolean[] := among(p_edge_jobs, p_made);
BEGIN
    WITH edge AS MATERIALIZED (
        SELECT e.*
        FROM unnest(p_edge_jobs, p_edge_positions, p_edge_chains, p_edge_policies, v_waits, v_made)
            AS e(job_id, position, chain, on_failure, waits, made)
        WHERE e.made
    ), edges AS (
        INSERT INTO blocker (job_id, position, chain_id, ended) SELECT e.job_id, e.position, e.chain, NOT e.waits FROM edge e
    ), doubts AS (
        INSERT INTO doubt (job_id, chain_id) SELECT e.job_id, e.chain FROM edge e WHERE p_doubt AND e.waits
    )
    INSERT INTO blocked (job_id, remaining, on_failure, run_at)
    SELECT e.job_id, count(*), min(e.on_failure), (SELECT j.run_at FROM job j WHERE j.id = e.job_id)
    FROM edge e WHERE e.waits GROUP BY e.job_id;

    IF NOT p_doubt THEN
        PERFORM resolve(ARRAY(
            SELECT DISTINCT e.chain FROM unnest(p_edge_chains) AS e(chain) CROSS JOIN LATERAL chain_state(e.chain) a
        ));
    END IF;
END
$$;
