-- Creates one plain job, as enqueue_plain.sql creates many: three inserts start sooner than a plan that holds them together.
CREATE OR REPLACE FUNCTION {schema}.enqueue_one(
    p_lane bigint, p_entry bigint, p_queue text, p_task text, p_priority smallint, p_requires text, p_lease_ms bigint, p_policy text,
    p_id uuid, p_args text, p_tags text, p_trace text
)
RETURNS void
LANGUAGE plpgsql VOLATILE {brisk} {impatient}
AS $$
DECLARE
    -- The transaction's id first, then the clock, then the place: the marks rely on this order (decision 0002).
    v_xid xid8 := pg_current_xact_id();
    v_now timestamptz := clock_timestamp();
    v_place bigint := nextval('place');
BEGIN
    INSERT INTO job (id, place, lane, entry, created_at, lease_ms, priority, born, task, queue, args, policy, windowed, tags, trace)
    VALUES (p_id, v_place, p_lane, p_entry, v_now, p_lease_ms, p_priority, 'ready', p_task, p_queue, p_args, p_policy, false, p_tags, p_trace);
    INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved) VALUES (p_entry, v_place, p_id, v_now, 0, 0, false);
    INSERT INTO tally (xid, lane, ready) VALUES (v_xid, p_lane, 1);
    IF NOT EXISTS (SELECT FROM lane l WHERE l.id = p_lane AND l.entry = p_entry) THEN
        INSERT INTO lane (id, entry, queue, task, priority, requires) VALUES (p_lane, p_entry, p_queue, p_task, p_priority, p_requires);
    END IF;
END
$$;
