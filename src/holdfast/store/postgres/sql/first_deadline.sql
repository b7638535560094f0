-- The first deadline from the base on, without a lock.
CREATE OR REPLACE FUNCTION {schema}.first_deadline(p_base timestamptz)
RETURNS TABLE (first timestamptz)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT d.at FROM deadline d WHERE d.at >= p_base ORDER BY d.at LIMIT 1
$$;
