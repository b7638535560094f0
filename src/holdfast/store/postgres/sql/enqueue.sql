-- Creates jobs. Answers only for those that were *not* created: repeated (the id is there), existing (the key is taken: by whom, and the
-- chain that stands for).
--
-- What many jobs share (lane, queue, task, policy, …) comes once as a shape; p_shape is the 1-based index into the shapes.
-- The arrays of what few jobs have (times, keys, chains, tags, blockers) are NULL when none has it. A job whose chain is itself is the
-- first step of one; of another chain, its next step: the caller has linked it (link.sql).
-- Gives up soon on what somebody's open transaction holds: HF008, a unique key; 55P03, an id.
-- Edges (p_edge_*) name the chains a job waits for, and what is to happen when one ends badly. With p_doubt nothing is locked for them
-- (block.sql): the transaction is a caller's, and may stay open for long.
CREATE OR REPLACE FUNCTION {schema}.enqueue(
    p_lanes bigint[], p_entries bigint[], p_queues text[], p_tasks text[], p_priorities smallint[], p_requires text[],
    p_lease_ms bigint[], p_policies text[],
    p_ids uuid[], p_shape int[], p_args text[],
    p_delays float8[], p_run_ats timestamptz[],
    p_scopes text[], p_keys text[], p_windows float8[], p_conflicts text[],
    p_chains uuid[], p_tags text[], p_traces text[], p_expires float8[],
    p_blockers int[], p_edge_jobs uuid[], p_edge_positions int[], p_edge_chains uuid[], p_edge_policies text[], p_doubt boolean
)
RETURNS TABLE (job_id uuid, answer text, holder uuid, chain uuid)
LANGUAGE plpgsql VOLATILE {hot} {impatient}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_refused uuid[] := '{{}}';
    v_due jsonb := '{{}}';       -- due times taken over from replaced jobs, by id
    v_waits boolean[];           -- for each job; NULL: none has blockers
    v_doubt boolean;
    v_made uuid[];
    v_lanes bigint[];
    k record;
BEGIN
    -- The transaction's id first, then the clock, then the places: the marks rely on this order (decision 0002).
    PERFORM pg_current_xact_id();
    v_now := clock_timestamp();

    IF p_keys IS NOT NULL THEN
        BEGIN
            FOR k IN
                SELECT * FROM take_keys(
                    p_ids, p_scopes, p_keys, p_windows, p_conflicts, p_delays, p_run_ats, p_chains, p_doubt, v_now
                )
            LOOP
                IF k.holder IS NOT NULL THEN
                    v_refused := v_refused || k.job_id;
                    RETURN QUERY SELECT k.job_id, 'existing', k.holder, k.chain;
                ELSE
                    v_due := v_due || jsonb_build_object(k.job_id::text, k.due);
                END IF;
            END LOOP;
        EXCEPTION WHEN lock_not_available THEN
            RAISE EXCEPTION USING ERRCODE = 'HF008';
        END;
    END IF;
    IF p_edge_jobs IS NOT NULL THEN
        SELECT w.waits, w.doubt INTO v_waits, v_doubt
        FROM open_waiters(p_ids, p_chains, p_edge_jobs, p_edge_chains, p_edge_policies, p_doubt) w;
    END IF;

    WITH made AS (
        INSERT INTO job (id, place, lane, entry, created_at, run_at, start_by, lease_ms, priority, born, task, queue, args, policy, scope,
            key, windowed, chain_id, tags, trace, blockers)
        SELECT i.id, nextval('place'), p_lanes[i.shape], p_entries[i.shape], v_now, CASE WHEN i.due > v_now THEN i.due END,
            v_now + i.expires * interval '1 s', p_lease_ms[i.shape], p_priorities[i.shape],
            CASE WHEN i.waits THEN 'blocked' WHEN i.due > v_now THEN 'scheduled' ELSE 'ready' END,
            p_tasks[i.shape], p_queues[i.shape], i.args, p_policies[i.shape], i.scope, i.key, i.win IS NOT NULL, i.chain_id, i.tags,
            i.trace, i.blockers
        FROM (
            SELECT u.*, coalesce(CASE WHEN p_keys IS NOT NULL THEN (v_due ->> u.id::text)::timestamptz END, u.run_at, v_now + u.delay * interval '1 s') AS due
            FROM unnest(p_ids, p_shape, p_args, p_delays, p_run_ats, p_scopes, p_keys, p_windows, p_chains, p_tags, p_traces,
                p_expires, p_blockers, v_waits) WITH ORDINALITY
                AS u(id, shape, args, delay, run_at, scope, key, win, chain_id, tags, trace, expires, blockers, waits, n)
            WHERE u.id <> ALL (v_refused)
            ORDER BY u.n
        ) i
        ON CONFLICT (id) DO NOTHING
        RETURNING id, place, lane, entry, born, run_at
    ), readied AS (
        INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved)
        SELECT m.entry, m.place, m.id, v_now, 0, 0, false FROM made m WHERE m.born = 'ready'
    ), rested AS (
        INSERT INTO scheduled (job_id, run_at, attempt, failures)
        SELECT m.id, m.run_at, 0, 0 FROM made m WHERE m.born = 'scheduled'
    ), counted AS (
        INSERT INTO tally (lane, ready, scheduled, blocked)
        SELECT m.lane, count(*) FILTER (WHERE m.born = 'ready'), count(*) FILTER (WHERE m.born = 'scheduled'),
            count(*) FILTER (WHERE m.born = 'blocked')
        FROM made m GROUP BY m.lane
    )
    SELECT array_agg(m.id), array_agg(DISTINCT m.lane) INTO v_made, v_lanes FROM made m;

    INSERT INTO lane (id, entry, queue, task, priority, requires)
    SELECT DISTINCT s.lane, s.entry, s.queue, s.task, s.priority, s.requires
    FROM unnest(p_lanes, p_entries, p_queues, p_tasks, p_priorities, p_requires) AS s(lane, entry, queue, task, priority, requires)
    WHERE s.lane = ANY (v_lanes) AND NOT EXISTS (SELECT FROM lane l WHERE l.id = s.lane AND l.entry = s.entry);

    IF EXISTS (SELECT FROM unnest(p_requires) AS r WHERE position('"\u001e' IN r) > 0) THEN
        PERFORM rouse(p_entries);
    END IF;
    IF p_expires IS NOT NULL THEN
        PERFORM set_deadlines(v_made, v_now);
    END IF;
    IF coalesce(cardinality(v_made), 0) + cardinality(v_refused) < cardinality(p_ids) THEN
        RETURN QUERY
        SELECT u.id, 'repeated', u.id, u.id FROM unnest(p_ids) AS u(id)
        WHERE u.id <> ALL (coalesce(v_made, '{{}}')) AND u.id <> ALL (v_refused);
    END IF;
    IF p_chains IS NOT NULL THEN
        INSERT INTO chain (id, step, steps)
        SELECT u.id, u.id, 1 FROM unnest(p_ids, p_chains) AS u(id, chain) WHERE u.chain = u.id AND u.id = ANY (v_made);
    END IF;
    IF p_edge_jobs IS NOT NULL THEN
        PERFORM block(
            v_made, ARRAY(SELECT u.id FROM unnest(p_ids, v_waits) AS u(id, waits) WHERE u.waits), p_edge_jobs, p_edge_positions,
            p_edge_chains, p_edge_policies, v_doubt
        );
    END IF;
END
$$;
