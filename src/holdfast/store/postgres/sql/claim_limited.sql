-- Takes ready jobs from lanes that limits hold for, in their order and no more than its quota from each before the others were asked; what is
-- left then is anybody's. Answers as claim.sql does; besides, one row that names the lanes that may have more (places) and (agains) in how many seconds it
-- is worth asking again, where a limit holds their jobs back. One row for all: as many as there are lanes took longer to send and read than the jobs.
--
-- A limit is counted and taken from under the lock of its row, so that claimers take turns on it and no count is ever stale. To lock no limit in vain,
-- which would have all claimers stand in one line, each is looked at first without a lock: most are full. One that gets room after that look is told
-- of by who made the room. Limits of a lane: those of its queue and task, and of its key, which has a row from its first claim on. A fifo lane
-- (p_tasks) is alone in its call.
--
-- Of keys no more are locked than this claim has use for, and those that another claimer has in hand are left to him while there are others: then many
-- claimers are in as many keys at once. Only who gets none waits, so that a claim that brings nothing has seen why. Nobody waits in a circle: limits
-- of queues and tasks come before those of keys, each in order of ids.
CREATE OR REPLACE FUNCTION {schema}.claim_limited(
    p_worker int, p_lanes bigint[], p_marks bigint[], p_fronts bigint[], p_quotas int[], p_queues bigint[], p_of_tasks bigint[], p_scopes bigint[],
    p_keys bigint[], p_scope_names text[], p_key_names text[], p_limit int, p_tasks text[]
)
RETURNS TABLE (
    entry bigint, task text, queue text, priority smallint, attempt int, failures int, policy text, lease_seconds float8,
    claimed_at timestamptz, expires_at timestamptz, last_ready_at timestamptz,
    places bigint[], ids uuid[], tokens uuid[], args text[], created_ats timestamptz[],
    chains uuid[], traces text[], overdue boolean[], blockers int[], ready_ats timestamptz[], agains float8[]
)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_paused bigint[];
    v_all bigint[];
    v_of_scope bigint[];
    v_ids bigint[];                -- of limits that say something, with what they leave
    v_rates float8[];
    v_sizes float8[];
    v_room bigint[];               -- as first seen, without a lock; NULL: as many as there are
    v_free bigint[];               -- of those that are locked; what others have in hand counts as full
    v_tokens float8[];
    v_spent boolean[];
    v_seen timestamptz[];
    v_ruling record;
    v_candidates bigint[] := '{{}}';  -- keys with room, in the order of their lanes
    v_wanted bigint := 0;
    v_needed int := 0;
    v_lock bigint[] := '{{}}';
    v_locked bigint[];
    v_of_queue int[];              -- the limits of each lane, as places in v_ids
    v_of_task int[];
    v_of_key int[];
    v_mine int[];                  -- those of one lane
    v_left int := p_limit;
    v_had int[] := array_fill(0, ARRAY[cardinality(p_lanes)]);
    v_more boolean[] := array_fill(true, ARRAY[cardinality(p_lanes)]);
    v_again float8[] := array_fill(NULL::float8, ARRAY[cardinality(p_lanes)]);
    v_tids tid[] := '{{}}';
    v_permit_limits bigint[] := '{{}}';
    v_permit_jobs uuid[] := '{{}}';
    v_take int;
    v_some tid[];
    v_jobs uuid[];
    v_costs float8[];
    v_cost float8;
    v_wait float8;
    v_took int;
    m int;
    v_dirty bigint[] := '{{}}';      -- limits with permits to be forgotten
    v_firsts bigint[] := '{{}}';
BEGIN
    {read_committed}
    IF EXISTS (SELECT FROM worker w WHERE w.no = p_worker AND w.disabled_at IS NOT NULL) THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM queue WHERE paused_at IS NOT NULL) THEN
        v_paused := paused_entries(p_lanes);
    END IF;

    SELECT array_agg(u.id), array_agg(u.scope) INTO v_all, v_of_scope
    FROM (
        SELECT DISTINCT u.id, u.scope FROM (
            SELECT unnest(p_queues) AS id, NULL::bigint AS scope UNION ALL SELECT unnest(p_of_tasks), NULL UNION ALL SELECT unnest(p_keys), unnest(p_scopes)
        ) u WHERE u.id IS NOT NULL
    ) u;

    -- what is not full as of now, with all that is over it
    SELECT coalesce(array_agg(r.id), '{{}}'), array_agg(r.rate), array_agg(r.size), array_agg(r.tokens), array_agg(0), array_agg(false), array_agg(r.seen_at),
        array_agg(CASE WHEN r.rate IS NOT NULL AND r.tokens <= 0 THEN 0 ELSE r.most - r.running END)
    INTO v_ids, v_rates, v_sizes, v_tokens, v_free, v_spent, v_seen, v_room
    FROM rulings(v_all, v_of_scope, false) r;
    IF v_ids <> '{{}}' THEN
        SELECT array_agg(array_position(v_ids, u.queue)), array_agg(array_position(v_ids, u.task)), array_agg(array_position(v_ids, u.key))
        INTO v_of_queue, v_of_task, v_of_key FROM unnest(p_queues, p_of_tasks, p_keys) AS u(queue, task, key);
        FOR i IN 1 .. cardinality(p_lanes) LOOP
            v_take := least(p_quotas[i], v_room[v_of_queue[i]], v_room[v_of_task[i]], v_room[v_of_key[i]]);  -- of which NULL is no bound
            CONTINUE WHEN v_take <= 0;
            IF v_of_queue[i] IS NOT NULL OR v_of_task[i] IS NOT NULL THEN
                v_lock := v_lock || p_queues[i] || p_of_tasks[i];
            END IF;
            CONTINUE WHEN v_of_key[i] IS NULL OR p_keys[i] = ANY (v_candidates);
            v_candidates := v_candidates || p_keys[i];
            IF v_wanted < p_limit THEN
                v_wanted := v_wanted + v_take;
                v_needed := v_needed + 1;
            END IF;
        END LOOP;
        -- keys that are claimed from for the first time, or were forgotten, before anything is locked
        IF (SELECT count(*) FROM limits l WHERE l.id = ANY (v_candidates)) < cardinality(v_candidates) THEN
            INSERT INTO limits (id, kind, name, key)
            SELECT k.id, 'key', k.scope, k.key FROM unnest(p_keys, p_scope_names, p_key_names) AS k(id, scope, key)
            WHERE k.id = ANY (v_candidates) AND NOT EXISTS (SELECT FROM limits l WHERE l.id = k.id OFFSET 0)
            ORDER BY k.id
            ON CONFLICT (id) DO NOTHING;
        END IF;
        IF v_lock <> '{{}}' THEN
            v_lock := ARRAY(SELECT l.id FROM limits l WHERE l.id = ANY (v_lock) AND l.id = ANY (v_ids) ORDER BY l.id FOR UPDATE);
        END IF;
        v_locked := ARRAY(
            SELECT l.id FROM unnest(v_candidates) AS c(id)
            CROSS JOIN LATERAL (SELECT limits.id FROM limits WHERE limits.id = c.id FOR UPDATE SKIP LOCKED) l
            LIMIT v_needed
        );
        IF v_locked = '{{}}' AND v_needed > 0 THEN
            v_locked := ARRAY(SELECT l.id FROM limits l WHERE l.id = ANY (v_candidates[1:v_needed]) ORDER BY l.id FOR UPDATE);
        END IF;
        v_lock := v_lock || v_locked;
        -- Counted anew, for who had the locks before has committed, and looked for anew among those that said nothing. All others count as full, also one
        -- that went meanwhile, because it was cleared or its key forgotten: it is asked again next time.
        SELECT array_agg(a.id), array_agg(a.scope) INTO v_all, v_of_scope
        FROM unnest(v_all, v_of_scope) AS a(id, scope) WHERE a.id = ANY (v_lock) OR a.id <> ALL (v_ids);
        FOR v_ruling IN SELECT * FROM rulings(v_all, v_of_scope, false) LOOP
            m := coalesce(array_position(v_ids, v_ruling.id), cardinality(v_ids) + 1);
            v_ids[m] := v_ruling.id;
            v_rates[m] := v_ruling.rate;
            v_sizes[m] := v_ruling.size;
            v_tokens[m] := v_ruling.tokens;
            v_seen[m] := v_ruling.seen_at;
            v_free[m] := CASE WHEN v_ruling.id = ANY (v_lock) THEN v_ruling.most - v_ruling.running ELSE 0 END;
            IF v_ruling.dead > 3 AND v_ruling.id = ANY (v_lock) THEN
                v_dirty := v_dirty || v_ruling.id;
                v_firsts := v_firsts || v_ruling.first;
            END IF;
        END LOOP;
    END IF;
    -- once more: one that said nothing at first may have joined
    SELECT array_agg(array_position(v_ids, u.queue)), array_agg(array_position(v_ids, u.task)), array_agg(array_position(v_ids, u.key))
    INTO v_of_queue, v_of_task, v_of_key FROM unnest(p_queues, p_of_tasks, p_keys) AS u(queue, task, key);

    FOR pass IN 1 .. 2 LOOP
        FOR i IN 1 .. cardinality(p_lanes) LOOP
            EXIT WHEN v_left = 0;
            CONTINUE WHEN NOT v_more[i] OR v_again[i] IS NOT NULL;
            IF p_lanes[i] = ANY (v_paused) THEN
                v_more[i] := false;
                CONTINUE;
            END IF;
            v_take := CASE WHEN pass = 1 THEN least(v_left, p_quotas[i] - v_had[i]) ELSE v_left END;
            CONTINUE WHEN v_take <= 0;
            v_take := least(v_take, v_free[v_of_queue[i]], v_free[v_of_task[i]], v_free[v_of_key[i]]);
            v_mine := array_remove(ARRAY[v_of_queue[i], v_of_task[i], v_of_key[i]], NULL);
            IF v_take <= 0 THEN
                FOREACH m IN ARRAY v_mine LOOP
                    CONTINUE WHEN coalesce(v_free[m], 1) > 0;
                    v_wait := CASE WHEN v_rates[m] IS NOT NULL AND v_tokens[m] <= 0 THEN (least(v_sizes[m], 1) - v_tokens[m]) / v_rates[m]
                        WHEN coalesce(v_room[m], 1) > 0 AND v_ids[m] <> ALL (v_lock) THEN {in_hand}  -- it had room, and somebody else has it in hand
                        ELSE {again} END;
                    v_again[i] := greatest(coalesce(v_again[i], 0), v_wait);
                END LOOP;
                CONTINUE;
            END IF;
            IF p_tasks IS NULL THEN
                SELECT array_agg(r.tid), array_agg(r.job_id) INTO v_some, v_jobs
                FROM (
                    SELECT r.tid, r.job_id
                    FROM unnest(ARRAY[-p_lanes[i], p_lanes[i]], ARRAY[p_fronts[i], p_marks[i]]) AS l(lane, mark)
                    CROSS JOIN LATERAL (
                        SELECT ready.ctid AS tid, ready.job_id FROM ready
                        WHERE ready.lane = l.lane AND ready.place >= l.mark AND ready.ctid <> ALL (v_tids)  -- its own locks are no obstacle
                        ORDER BY ready.place LIMIT v_take
                        FOR UPDATE SKIP LOCKED
                    ) r
                    LIMIT v_take
                ) r;
            ELSE
                v_some := claim_fifo(ARRAY[-p_lanes[i], p_lanes[i]], ARRAY[coalesce(p_fronts[i], 0), p_marks[i]], v_take, p_tasks, v_paused);
                SELECT array_agg(r.ctid ORDER BY r.lane > 0, r.place), array_agg(r.job_id ORDER BY r.lane > 0, r.place) INTO v_some, v_jobs
                FROM ready r WHERE r.ctid = ANY (v_some);
            END IF;
            v_took := coalesce(cardinality(v_some), 0);
            v_more[i] := v_took = v_take;
            -- tokens, job by job in their order: the first that they do not suffice for stops the lane
            v_costs := NULL;
            FOREACH m IN ARRAY v_mine LOOP
                CONTINUE WHEN v_rates[m] IS NULL OR v_took = 0;
                IF v_costs IS NULL THEN
                    SELECT array_agg(coalesce((j.policy::json ->> 3)::float8, 1) ORDER BY n.n) INTO v_costs
                    FROM unnest(v_jobs) WITH ORDINALITY AS n(id, n)
                    CROSS JOIN LATERAL (SELECT policy FROM job WHERE job.id = n.id LIMIT 1) j;
                END IF;
                v_cost := 0;
                FOR k IN 1 .. v_took LOOP
                    IF v_tokens[m] - v_cost < least(v_costs[k], v_sizes[m]) - 1e-9 THEN
                        v_wait := greatest(0, (least(v_costs[k], v_sizes[m]) - v_tokens[m] + v_cost) / v_rates[m]);
                        v_again[i] := greatest(coalesce(v_again[i], 0), v_wait);
                        v_more[i] := true;
                        v_took := k - 1;
                        EXIT;
                    END IF;
                    v_cost := v_cost + v_costs[k];
                END LOOP;
            END LOOP;
            CONTINUE WHEN v_took = 0;
            FOREACH m IN ARRAY v_mine LOOP
                v_free[m] := v_free[m] - v_took;
                IF v_rates[m] IS NOT NULL THEN
                    v_tokens[m] := v_tokens[m] - (SELECT sum(c) FROM unnest(v_costs[1:v_took]) AS c);
                    v_spent[m] := true;
                END IF;
                v_permit_limits := v_permit_limits || array_fill(v_ids[m], ARRAY[v_took]);
                v_permit_jobs := v_permit_jobs || v_jobs[1:v_took];
            END LOOP;
            v_tids := v_tids || v_some[1:v_took];
            v_had[i] := v_had[i] + v_took;
            v_left := v_left - v_took;
        END LOOP;
    END LOOP;

    SELECT array_agg(u.lane), array_agg(u.again) INTO places, agains FROM unnest(p_lanes, v_more, v_again) AS u(lane, more, again) WHERE u.more;
    RETURN NEXT;
    IF v_tids = '{{}}' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT *, NULL::float8[] FROM claim(p_worker, NULL, NULL, 0, NULL, v_tids);
    INSERT INTO permit (limit_id, no, job_id, attempt)
    SELECT u.limit_id, l.no, l.job_id, l.attempt
    FROM unnest(v_permit_limits, v_permit_jobs) AS u(limit_id, job_id)
    CROSS JOIN LATERAL (SELECT * FROM lease WHERE lease.job_id = u.job_id LIMIT 1) l;
    IF true = ANY (v_spent) THEN
        UPDATE limits l SET tokens = u.tokens, filled_at = u.seen_at
        FROM unnest(v_ids, v_tokens, v_spent, v_seen) AS u(id, tokens, spent, seen_at) WHERE l.id = u.id AND u.spent AND l.id = ANY (v_ids);
    END IF;
    IF v_dirty <> '{{}}' THEN
        PERFORM tidy_permits(v_dirty, v_firsts);
    END IF;
END
$$;
