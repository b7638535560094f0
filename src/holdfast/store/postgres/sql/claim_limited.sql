-- Takes ready jobs from lanes that limits hold for, in their order and no more than its quota from each before the others were asked; what is
-- left then is anybody's. Answers as claim.sql does; besides, for each lane that may have more, a row with nothing but its entry and (lease_seconds) in
-- how many seconds it is worth asking again, where a limit holds its jobs back.
--
-- A limit is counted and taken from under the lock of its row, in order of ids, so that claimers take turns on it and no count is ever stale. To lock no
-- limit in vain, which would have all claimers stand in one line, each is looked at first without a lock: most are full. One that gets room after
-- that look is told of by who made the room. Limits of a lane: those of its queue and task, and of its key, which has a row from its first claim on.
-- A fifo lane (p_tasks) is alone in its call.
CREATE OR REPLACE FUNCTION {schema}.claim_limited(
    p_worker int, p_lanes bigint[], p_marks bigint[], p_fronts bigint[], p_quotas int[], p_queues bigint[], p_of_tasks bigint[], p_scopes bigint[],
    p_keys bigint[], p_scope_names text[], p_key_names text[], p_limit int, p_tasks text[]
)
RETURNS TABLE (
    entry bigint, task text, queue text, priority smallint, attempt int, failures int, policy text, lease_seconds float8,
    claimed_at timestamptz, expires_at timestamptz, last_ready_at timestamptz,
    places bigint[], ids uuid[], tokens uuid[], args text[], created_ats timestamptz[],
    chains uuid[], traces text[], overdue boolean[], blockers int[], ready_ats timestamptz[]
)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_paused bigint[];
    v_all bigint[];
    v_of_scope bigint[];
    v_ids bigint[];                -- of limits that say something, with what they leave
    v_scopes bigint[];
    v_rates float8[];
    v_sizes float8[];
    v_free bigint[];               -- NULL: as many as there are
    v_tokens float8[];
    v_spent boolean[];
    v_lock bigint[];
    v_mine int[];                  -- the limits of one lane, as places in v_ids
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
    v_tidies boolean;
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

    -- what is not full as of now, with all that is over it: those are locked
    SELECT array_agg(r.id), array_agg(coalesce(r.most - r.running, 1) > 0 AND (r.rate IS NULL OR r.tokens > 0)) INTO v_ids, v_spent
    FROM rulings(v_all, v_of_scope, false) r;
    IF v_ids IS NOT NULL THEN
        v_lock := ARRAY(
            SELECT DISTINCT x.id FROM (
                SELECT unnest(ARRAY[q.queue, q.of_task, q.key]) AS id
                FROM unnest(p_queues, p_of_tasks, p_keys) AS q(queue, of_task, key)
                WHERE coalesce(v_spent[array_position(v_ids, q.queue)], true) AND coalesce(v_spent[array_position(v_ids, q.of_task)], true)
                    AND coalesce(v_spent[array_position(v_ids, q.key)], true)
            ) x WHERE x.id = ANY (v_ids) ORDER BY x.id
        );
        -- keys that are claimed from for the first time, or were forgotten, before anything is locked
        INSERT INTO limits (id, kind, name, key)
        SELECT k.id, 'key', k.scope, k.key FROM unnest(p_keys, p_scope_names, p_key_names) AS k(id, scope, key)
        WHERE k.id = ANY (v_lock) AND NOT EXISTS (SELECT FROM limits l WHERE l.id = k.id OFFSET 0)
        ORDER BY k.id
        ON CONFLICT (id) DO NOTHING;
        v_lock := ARRAY(SELECT l.id FROM limits l WHERE l.id = ANY (v_lock) ORDER BY l.id FOR UPDATE);
        -- one that went meanwhile, because it was cleared or its key forgotten, is not among them: it is asked again next time
        -- counted anew: who had the locks before has committed. What was full is left as it is, and counts as full
        SELECT array_agg(r.id), array_agg(r.rate), array_agg(r.size), array_agg(r.tokens), array_agg(false), bool_or(r.dead > 16),
            array_agg(CASE WHEN r.id <> ALL (v_lock) THEN 0 ELSE r.most - r.running END)
        INTO v_ids, v_rates, v_sizes, v_tokens, v_spent, v_tidies, v_free
        FROM rulings(v_all, v_of_scope, false) r;
        v_ids := coalesce(v_ids, '{{}}');
    ELSE
        v_ids := '{{}}';
    END IF;

    FOR pass IN 1 .. 2 LOOP
        FOR i IN 1 .. cardinality(p_lanes) LOOP
            EXIT WHEN v_left = 0;
            CONTINUE WHEN NOT v_more[i] OR v_again[i] IS NOT NULL;
            IF p_lanes[i] = ANY (v_paused) THEN
                v_more[i] := false;
                CONTINUE;
            END IF;
            v_mine := ARRAY(SELECT p FROM unnest(ARRAY[array_position(v_ids, p_queues[i]), array_position(v_ids, p_of_tasks[i]),
                array_position(v_ids, p_keys[i])]) AS p WHERE p IS NOT NULL);
            v_take := CASE WHEN pass = 1 THEN least(v_left, p_quotas[i] - v_had[i]) ELSE v_left END;
            CONTINUE WHEN v_take <= 0;
            FOREACH m IN ARRAY v_mine LOOP
                v_take := least(v_take, coalesce(v_free[m], v_take));
            END LOOP;
            IF v_take <= 0 THEN
                FOREACH m IN ARRAY v_mine LOOP
                    CONTINUE WHEN coalesce(v_free[m], 1) > 0;
                    v_wait := CASE WHEN v_rates[m] IS NOT NULL AND v_tokens[m] <= 0
                        THEN (least(v_sizes[m], 1) - v_tokens[m]) / v_rates[m] ELSE {again} END;
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

    RETURN QUERY
    SELECT u.lane, NULL::text, NULL::text, NULL::smallint, NULL::int, NULL::int, NULL::text, u.again, NULL::timestamptz, NULL::timestamptz,
        NULL::timestamptz, NULL::bigint[], NULL::uuid[], NULL::uuid[], NULL::text[], NULL::timestamptz[], NULL::uuid[], NULL::text[], NULL::boolean[],
        NULL::int[], NULL::timestamptz[]
    FROM unnest(p_lanes, v_more, v_again) AS u(lane, more, again) WHERE u.more;
    IF v_tids = '{{}}' THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT * FROM claim(p_worker, NULL, NULL, 0, NULL, v_tids);
    INSERT INTO permit (limit_id, no, job_id, attempt)
    SELECT u.limit_id, l.no, l.job_id, l.attempt
    FROM unnest(v_permit_limits, v_permit_jobs) AS u(limit_id, job_id)
    CROSS JOIN LATERAL (SELECT * FROM lease WHERE lease.job_id = u.job_id LIMIT 1) l;
    IF true = ANY (v_spent) THEN
        UPDATE limits l SET tokens = u.tokens, filled_at = clock_timestamp()
        FROM unnest(v_ids, v_tokens, v_spent) AS u(id, tokens, spent) WHERE l.id = u.id AND u.spent AND l.id = ANY (v_ids);
    END IF;
    IF v_tidies THEN
        PERFORM tidy_permits(v_lock);
    END IF;
END
$$;
