-- What limits say, and how far they are used: of each id its own rule, or that of its scope (p_scopes, NULL for queues and tasks). Only those that
-- say something. What was set for a single key and speaks of its weight alone leaves it under its scope's, the weight of a
-- queue with what was declared for it (core/limits.py, `ruling`).
--
-- The tokens are those of `seen_at`: who takes some writes that moment down with what is left.
--
-- What runs is counted where a number bounds it, or where somebody wants to see it (p_counted).
-- A permit counts while the lease of that attempt exists: nobody has to give it back, however the lease ends. None below `base` is held.
CREATE OR REPLACE FUNCTION {schema}.rulings(p_ids bigint[], p_scopes bigint[], p_counted boolean DEFAULT true)
RETURNS TABLE (id bigint, most int, rate float8, size float8, tokens float8, base bigint, running bigint, dead bigint, first bigint, seen_at timestamptz)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT w.id, r.most, r.rate, r.size, least(r.size, coalesce(own.tokens + r.rate * greatest(0, extract(epoch FROM n.now - own.filled_at)), r.size)),
        coalesce(own.base, 0), p.running, p.dead, p.first, n.now
    FROM (SELECT clock_timestamp() AS now OFFSET 0) n
    CROSS JOIN unnest(p_ids, p_scopes) AS w(id, scope)
    LEFT JOIN LATERAL (SELECT * FROM limits l WHERE l.id = w.id LIMIT 1) own ON true
    LEFT JOIN LATERAL (SELECT * FROM limits l WHERE l.id = w.scope LIMIT 1) of_scope ON true
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN w.scope IS NULL AND own.override::json ->> 'weight' IS NOT NULL AND coalesce(own.override::json ->> 'most', own.override::json ->> 'rate') IS NULL
                THEN own.declared
            WHEN w.scope IS NULL THEN coalesce(own.override, own.declared)
            WHEN (own.override::json ->> 'most') IS NOT NULL OR (own.override::json ->> 'rate') IS NOT NULL THEN own.override
            ELSE coalesce(of_scope.override, of_scope.declared)
        END::json AS said OFFSET 0
    ) s
    CROSS JOIN LATERAL (
        SELECT (s.said ->> 'most')::int AS most, (s.said ->> 'rate')::float8 AS rate,
            coalesce((s.said ->> 'burst')::float8, greatest(1, (s.said ->> 'rate')::float8)) AS size OFFSET 0
    ) r
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE h.held) AS running, count(*) FILTER (WHERE NOT h.held) AS dead, min(h.no) FILTER (WHERE h.held) AS first
        FROM (
            SELECT p.no, EXISTS (SELECT FROM lease l WHERE l.job_id = p.job_id AND l.attempt = p.attempt OFFSET 0) AS held
            FROM permit p WHERE p.limit_id = w.id AND p.no >= coalesce(own.base, 0) AND (p_counted OR r.most IS NOT NULL)
        ) h
    ) p
    WHERE r.most IS NOT NULL OR r.rate IS NOT NULL
$$;
