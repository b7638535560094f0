-- Refuses (HF003, with the depth and the queue) when one of these queues, given in order, holds more waiting jobs than
-- it may. The last statement of a transaction that has created jobs there.
--
-- Whoever comes second waits here for the first to end. The count is a statement of its own, so that it sees what they have
-- committed meanwhile. A caller's transaction may stay open for long, and everybody who creates jobs there would wait for it: it takes
-- no turn (p_turns false), and two of them may get past together.
CREATE OR REPLACE FUNCTION {schema}.cap(p_queues text[], p_most bigint[], p_turns boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_queue text;
    v_full record;
BEGIN
    FOREACH v_queue IN ARRAY p_queues LOOP
        EXIT WHEN NOT p_turns;
        PERFORM pg_advisory_xact_lock(hashtextextended('{schema_text}.cap.' || v_queue, 0));
    END LOOP;
    SELECT q.queue, sum(c.blocked + c.scheduled + c.ready)::bigint AS depth INTO v_full
    FROM counts() c
    CROSS JOIN LATERAL (SELECT l.queue FROM lane l WHERE l.id = c.lane LIMIT 1) l
    JOIN unnest(p_queues, p_most) WITH ORDINALITY AS q(queue, most, n) ON q.queue = l.queue
    GROUP BY q.n, q.queue, q.most HAVING sum(c.blocked + c.scheduled + c.ready) > q.most
    ORDER BY q.n LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'HF003', MESSAGE = format('%s %s', v_full.depth, v_full.queue);
    END IF;
END
$$;
