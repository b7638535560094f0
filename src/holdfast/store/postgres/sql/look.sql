-- A plain, non-locking look at every lane that belongs to no key (look_keys.sql): its first visible row from the base on, and the first of its front.
-- One row per (lane, task); the snapshot's bounds let the caller move its marks (decision 0002).
--
-- The retries of a lane are a lane like others, known from the first retry on.
-- The places of a front are old ones, in no order of time: so fronts are read by the number drawn when a row entered.
CREATE OR REPLACE FUNCTION {schema}.look(p_lanes bigint[], p_bases bigint[], p_fronts bigint)
RETURNS TABLE (
    entry bigint, queue text, task text, priority smallint, requires text, fifo boolean,
    limited boolean, head_place bigint, head_at timestamptz, front_place bigint, front_at timestamptz, front_entered bigint
)
LANGUAGE sql STABLE {hot} SET enable_mergejoin TO off
AS $$
    WITH front AS MATERIALIZED (
        SELECT -r.lane AS entry, min(r.place) AS place, min(r.ready_at) AS ready_at, min(r.entered) AS entered
        FROM ready r WHERE r.lane < 0 AND r.entered >= p_fronts GROUP BY r.lane
    ), wide AS MATERIALIZED (
        SELECT t.kind, t.name FROM limits t WHERE t.kind <> 'key'
            AND (t.declared IS NOT NULL OR t.override::json ->> 'weight' IS NULL OR coalesce(t.override::json ->> 'most', t.override::json ->> 'rate') IS NOT NULL)
    )
    SELECT l.entry, l.queue, l.task, l.priority, l.requires, l.fifo,
        l.queue IN (SELECT name FROM wide WHERE kind = 'queue') OR l.task IN (SELECT name FROM wide WHERE kind = 'task'), h.place, h.ready_at, f.place, f.ready_at, f.entered
    FROM (
        SELECT DISTINCT entry, queue, task, priority, requires, id <> entry & ~1::bigint AS fifo FROM lane WHERE NOT keyed
    ) l
    LEFT JOIN unnest(p_lanes, p_bases) AS b(entry, base) ON b.entry = l.entry
    LEFT JOIN LATERAL (
        SELECT r.place, r.ready_at FROM ready r WHERE r.lane = l.entry AND r.place >= coalesce(b.base, 0) ORDER BY r.place LIMIT 1
    ) h ON true
    LEFT JOIN front f ON f.entry = l.entry
$$;
