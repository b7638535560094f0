-- The first scheduled job from the base on, without a lock.
CREATE OR REPLACE FUNCTION {schema}.due(p_base timestamptz)
RETURNS TABLE (first timestamptz)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT s.run_at FROM scheduled s WHERE s.run_at >= p_base ORDER BY s.run_at LIMIT 1
$$;
