-- Adds the edges of newly made jobs, and the rows of those that must wait. Chains that have ended already, and badly, act at once.
CREATE OR REPLACE FUNCTION {schema}.block(
    p_made uuid[], p_ids uuid[], p_on_failure text[], p_blocked uuid[], p_edge_jobs uuid[], p_edge_positions int[], p_edge_chains uuid[]
)
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
BEGIN
    WITH edge AS MATERIALIZED (
        SELECT e.job_id, e.position, e.chain, f.on_failure,
            coalesce(a.state = 'succeeded' OR (a.state IS NOT NULL AND f.on_failure = 'run'), false) AS ended
        FROM unnest(p_edge_jobs, p_edge_positions, p_edge_chains) AS e(job_id, position, chain)
        CROSS JOIN LATERAL (SELECT p_on_failure[array_position(p_ids, e.job_id)] AS on_failure) f
        LEFT JOIN LATERAL (SELECT a.state FROM archive a WHERE a.job_id = e.chain LIMIT 1) a ON true
        WHERE e.job_id = ANY (p_made)
    ), edges AS (
        INSERT INTO blocker (job_id, position, chain_id, ended) SELECT e.job_id, e.position, e.chain, e.ended FROM edge e
    )
    INSERT INTO blocked (job_id, remaining, on_failure, run_at)
    SELECT e.job_id, count(*) FILTER (WHERE NOT e.ended), min(e.on_failure), (SELECT j.run_at FROM job j WHERE j.id = e.job_id)
    FROM edge e WHERE e.job_id = ANY (p_blocked) GROUP BY e.job_id;

    PERFORM resolve(ARRAY(
        SELECT DISTINCT e.chain FROM unnest(p_edge_chains) AS e(chain)
        WHERE EXISTS (SELECT FROM archive a WHERE a.job_id = e.chain)
    ));
END
$$;
