-- Finds blocked jobs one of whose chains has ended unseen, and settles them. A safety net: settle does this itself.
CREATE OR REPLACE FUNCTION {schema}.unblock(p_limit int)
RETURNS int
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
BEGIN
    RETURN resolve(ARRAY(
        SELECT DISTINCT e.chain_id
        FROM blocked b
        CROSS JOIN LATERAL (
            SELECT e.chain_id FROM blocker e WHERE e.job_id = b.job_id AND NOT e.ended
            AND EXISTS (SELECT FROM archive a WHERE a.job_id = e.chain_id)
        ) e
        LIMIT p_limit
    ));
END
$$;
