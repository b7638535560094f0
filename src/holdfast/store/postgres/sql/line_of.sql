-- Where a job lines up: in its entry, or with the retries beside that once it has failed; a fifo lane keeps one order for all (core/job.py, `line_of`).
-- Without settings of its own, so that it is inlined.
CREATE OR REPLACE FUNCTION {schema}.line_of(p_entry bigint, p_lane bigint, p_failures int)
RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_failures > 0 AND (p_entry = p_lane OR p_entry & 2 <> 0) THEN p_entry | 1 ELSE p_entry END
$$;
