-- Returns the chains that these chains wait for, and those that they wait for, and so on; these themselves included.
--
-- Two steps that continue at the same moment, each waiting for the other's chain, do not see each other here. Each then waits for
-- the row of the other's lease, which that one has just deleted: the server ends one of them, and it is made again, and sees.
CREATE OR REPLACE FUNCTION {schema}.awaited(p_chains uuid[])
RETURNS TABLE (chain uuid)
LANGUAGE plpgsql STABLE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_seen uuid[] := '{{}}';
    v_front uuid[] := p_chains;
BEGIN
    WHILE cardinality(v_front) > 0 LOOP
        v_seen := v_seen || v_front;
        v_front := ARRAY(
            SELECT DISTINCT b.chain_id
            FROM unnest(v_front) AS f(id)
            CROSS JOIN LATERAL (
                SELECT b.chain_id FROM blocker b
                WHERE b.job_id = coalesce((SELECT c.step FROM chain c WHERE c.id = f.id), f.id) AND NOT b.ended
            ) b
            WHERE b.chain_id <> ALL (v_seen)
        );
    END LOOP;
    RETURN QUERY SELECT s.id FROM unnest(v_seen) AS s(id);
END
$$;
