-- Makes known that these lanes have retries, in the transaction that puts the first ones there.
CREATE OR REPLACE FUNCTION {schema}.know_retries(p_lanes bigint[])
RETURNS void
LANGUAGE sql VOLATILE {hot}
AS $$
    INSERT INTO lane (id, entry, queue, task, priority, requires)
    SELECT DISTINCT l.id, l.id | 1, l.queue, l.task, l.priority, l.requires
    FROM lane l
    WHERE l.id = ANY (p_lanes) AND l.entry = l.id AND l.id | 1 <> ALL (ARRAY(SELECT r.entry FROM lane r WHERE r.id = ANY (p_lanes)))
$$;
