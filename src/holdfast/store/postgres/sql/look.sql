-- A plain, non-locking look at every lane: its first visible row from the base on, and the first of its front.
-- One row per (lane, task); the snapshot's bounds let the caller move its marks (decision 0002).
CREATE OR REPLACE FUNCTION {schema}.look(p_lanes bigint[], p_bases bigint[])
RETURNS TABLE (
    entry bigint, queue text, task text, priority smallint, requires text, fifo boolean,
    head_place bigint, head_at timestamptz, front_at timestamptz
)
LANGUAGE sql STABLE {hot} SET enable_mergejoin TO off
AS $$
    SELECT l.entry, l.queue, l.task, l.priority, l.requires, l.fifo, h.place, h.ready_at, f.ready_at
    FROM (SELECT DISTINCT entry, queue, task, priority, requires, id <> entry AS fifo FROM lane) l
    LEFT JOIN unnest(p_lanes, p_bases) AS b(entry, base) ON b.entry = l.entry
    LEFT JOIN LATERAL (
        SELECT r.place, r.ready_at FROM ready r WHERE r.lane = l.entry AND r.place >= coalesce(b.base, 0) ORDER BY r.place LIMIT 1
    ) h ON true
    LEFT JOIN LATERAL (
        SELECT r.ready_at FROM ready r WHERE r.lane = -l.entry ORDER BY r.place LIMIT 1
    ) f ON true
$$;
