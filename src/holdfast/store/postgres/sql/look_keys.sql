-- A plain, non-locking look at lanes of keys, as look.sql has one at all others: of each lane that jobs are counted in (p_ids) at those of the next keys in
-- which something waits, by their numbers behind p_afters, as many as p_mosts says (p_most, for lanes the caller does not know yet); and at the keys
-- p_kept. There may be very many: no more than p_scanned are passed over, so that what a look does is bounded, however many wait and however
-- many do not rest yet (rest.sql) though nothing is in them. Where p_scans is given, the p_aged oldest are looked for as well, among so many behind it.
--
-- Besides, a row without an entry tells how far was looked (`reached`; NULL: to the end), where fewer were found than asked for, and where the
-- oldest were looked for.
--
-- `limited` tells whether a limit of its queue or task is over a key besides its own.
--
-- The retries of a key (entry | 1) are seen with it. Fronts are read by their places: no mark serves those of keys, for not all are seen.
CREATE OR REPLACE FUNCTION {schema}.look_keys(
    p_lanes bigint[], p_bases bigint[], p_ids bigint[], p_afters bigint[], p_mosts int[], p_scans bigint[], p_kept bigint[], p_most int, p_scanned int, p_aged int
)
RETURNS TABLE (
    entry bigint, queue text, task text, priority smallint, requires text, fifo boolean,
    limited boolean, head_place bigint, head_at timestamptz, front_place bigint, front_at timestamptz, front_entered bigint,
    counted bigint, how text, reached bigint
)
LANGUAGE plpgsql STABLE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_id bigint := 0;
    v_after bigint;
    v_most int;
    v_far int;
    v_near bigint[];
    v_found bigint[];
    v_keys bigint[] := p_kept;
    v_hows text[] := array_fill('kept'::text, ARRAY[cardinality(p_kept)]);
    v_wide boolean;
    n int;
BEGIN
    LOOP
        v_id := (SELECT min(l.id) FROM lane l WHERE l.keyed AND NOT l.resting AND l.id > v_id);
        EXIT WHEN v_id IS NULL;
        n := array_position(p_ids, v_id);
        v_most := coalesce(p_mosts[n], p_most);
        IF v_most > 0 THEN
            -- mostly something waits in each of them; further only where that is not so
            FOREACH v_far IN ARRAY ARRAY[least(2 * v_most, p_scanned), p_scanned] LOOP
                v_near := ARRAY(
                    SELECT l.entry FROM lane l
                    WHERE l.id = v_id AND l.keyed AND NOT l.resting AND l.entry > coalesce(p_afters[n], 0) | 1
                    ORDER BY l.entry LIMIT v_far
                );
                v_found := ARRAY(
                    SELECT k.key
                    FROM (SELECT DISTINCT u.entry & ~1::bigint AS key FROM unnest(v_near) AS u(entry) ORDER BY key) k
                    WHERE EXISTS (SELECT FROM ready r WHERE r.lane = ANY (ARRAY[k.key, k.key | 1, -k.key, -(k.key | 1)]) OFFSET 0)
                    LIMIT v_most
                );
                EXIT WHEN cardinality(v_found) = v_most OR cardinality(v_near) < v_far;
            END LOOP;
            v_keys := v_keys || v_found;
            v_hows := v_hows || array_fill('next'::text, ARRAY[cardinality(v_found)]);
            IF cardinality(v_found) < v_most THEN
                counted := v_id;
                how := 'next';
                reached := CASE WHEN cardinality(v_near) = p_scanned THEN v_near[p_scanned] & ~1::bigint END;
                RETURN NEXT;
            END IF;
        END IF;
        IF p_scans[n] IS NOT NULL THEN
            v_near := ARRAY(
                SELECT l.entry FROM lane l WHERE l.id = v_id AND l.keyed AND NOT l.resting AND l.entry > p_scans[n] | 1 ORDER BY l.entry LIMIT p_scanned
            );
            v_found := ARRAY(
                SELECT u.entry & ~1::bigint
                FROM unnest(v_near) AS u(entry)
                CROSS JOIN LATERAL (SELECT r.ready_at FROM ready r WHERE r.lane = u.entry ORDER BY r.place LIMIT 1) h
                ORDER BY h.ready_at LIMIT p_aged
            );
            v_keys := v_keys || v_found;
            v_hows := v_hows || array_fill('aged'::text, ARRAY[cardinality(v_found)]);
            counted := v_id;
            how := 'aged';
            reached := CASE WHEN cardinality(v_near) = p_scanned THEN v_near[p_scanned] & ~1::bigint END;
            RETURN NEXT;
        END IF;
    END LOOP;
    IF v_keys = '{{}}' THEN
        RETURN;
    END IF;
    v_wide := EXISTS (SELECT FROM limits WHERE kind <> 'key');
    RETURN QUERY
    SELECT l.entry, l.queue, l.task, l.priority, l.requires, false, v_wide AND EXISTS (
            SELECT FROM limits t WHERE t.kind = 'queue' AND t.name = l.queue
                AND (t.declared IS NOT NULL OR t.override::json ->> 'weight' IS NULL OR coalesce(t.override::json ->> 'most', t.override::json ->> 'rate') IS NOT NULL)
            UNION ALL SELECT FROM limits t WHERE t.kind = 'task' AND t.name = l.task
        ), h.place, h.ready_at, f.place, f.ready_at, NULL::bigint, l.id, k.how, NULL::bigint
    FROM unnest(v_keys, v_hows) AS k(key, how)
    CROSS JOIN LATERAL (SELECT DISTINCT ON (x.entry) x.* FROM lane x WHERE x.entry = ANY (ARRAY[k.key, k.key | 1]) AND x.keyed AND NOT x.resting ORDER BY x.entry) l
    LEFT JOIN LATERAL (
        SELECT r.place, r.ready_at FROM ready r
        WHERE r.lane = l.entry AND r.place >= coalesce(p_bases[array_position(p_lanes, l.entry)], 0) ORDER BY r.place LIMIT 1
    ) h ON true
    LEFT JOIN LATERAL (SELECT r.place, r.ready_at FROM ready r WHERE r.lane = -l.entry ORDER BY r.place LIMIT 1) f ON true;
END
$$;
