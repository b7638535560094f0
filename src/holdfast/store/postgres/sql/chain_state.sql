-- Tells how a chain has ended, as of this statement; no row while it is live, or when it is gone. Without settings of its own, so that it
-- is inlined.
CREATE OR REPLACE FUNCTION {schema}.chain_state(p_chain uuid)
RETURNS TABLE (state text)
LANGUAGE sql STABLE
AS $$
    SELECT a.state FROM {schema}.archive a
    WHERE a.job_id = coalesce((SELECT c.step FROM {schema}.chain c WHERE c.id = p_chain), p_chain) LIMIT 1
$$;
