-- The steps of chains, a job alone among them. Without settings of its own, so that it is inlined.
CREATE OR REPLACE FUNCTION {schema}.steps_of(p_chains uuid[])
RETURNS TABLE (id uuid, chain uuid)
LANGUAGE sql STABLE
AS $$
    SELECT j.id, j.chain_id FROM {schema}.job j WHERE j.chain_id = ANY (p_chains)
    UNION ALL
    SELECT j.id, j.id FROM {schema}.job j WHERE j.id = ANY (p_chains) AND j.chain_id IS NULL
$$;
