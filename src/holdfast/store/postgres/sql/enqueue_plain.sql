-- Creates plain jobs of one shape: ready at once, without key, chain, deadline or blockers, in a transaction of the store's own. That is
-- nearly every job, and two inserts for all of them take half the time of what enqueue.sql does, and write less.
-- All are created, or none: 23505 when the id of one is there already, and enqueue.sql is to say of which. An id that somebody's open
-- transaction holds is given up soon: 55P03.
CREATE OR REPLACE FUNCTION {schema}.enqueue_plain(
    p_lane bigint, p_entry bigint, p_queue text, p_task text, p_priority smallint, p_requires text, p_lease_ms bigint, p_policy text,
    p_ids uuid[], p_args text[], p_tags text[], p_traces text[]
)
RETURNS void
LANGUAGE plpgsql VOLATILE {brisk} {impatient}
AS $$
DECLARE
    -- The transaction's id first, then the clock, then the places: the marks rely on this order (decision 0002).
    v_xid xid8 := pg_current_xact_id();
    v_now timestamptz := clock_timestamp();
    v_places bigint[] := ARRAY(SELECT nextval('place') FROM generate_series(1, cardinality(p_ids)));
BEGIN
    -- arrays are unnested side by side in the list of what is inserted: as a table, their rows would be written down first.
    -- No ON CONFLICT: it would look up every id before, and log every row twice
    INSERT INTO job (id, place, lane, entry, created_at, lease_ms, priority, born, task, queue, args, policy, windowed, tags, trace)
    SELECT unnest(p_ids), unnest(v_places), p_lane, p_entry, v_now, p_lease_ms, p_priority, 'ready', p_task, p_queue, unnest(p_args), p_policy,
        false, unnest(p_tags), unnest(p_traces);
    INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved)
    SELECT p_entry, unnest(v_places), unnest(p_ids), v_now, 0, 0, false;
    INSERT INTO tally (xid, lane, ready) VALUES (v_xid, p_lane, cardinality(p_ids));
    IF NOT EXISTS (SELECT FROM lane l WHERE l.id = p_lane AND l.entry = p_entry) THEN
        INSERT INTO lane (id, entry, queue, task, priority, requires) VALUES (p_lane, p_entry, p_queue, p_task, p_priority, p_requires);
    END IF;
END
$$;
