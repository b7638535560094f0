-- Ends attempts under their tokens, for the holder (p_reap false), for the reaper, or for whoever takes the leases back (p_actor). Answers only for those that were not plainly
-- applied (among them canceled: a cancel had been asked for, and the job does not go on as p_events says); besides once where
-- waiters may run now (freed), and for each step that continues, with its chain: its next step (p_next)
-- is the caller's to create, in the same transaction. Arrays that say what most say are NULL: events, and with them all that belongs to
-- them (all succeeded), results (null), next steps and signals (none).
--
-- The lease row decides: what this DELETE returns is applied, everything else is stale or repeated. The reaper first locks
-- what is lapsed *now*, skipping what a heartbeat or settle has in hand. `lease` is never addressed by ctid: a heartbeat moves
-- the row. Ids and tokens are matched in pairs, or two crossed tokens would delete both leases; a hash join is the only plan
-- left for that, over an index scan of the ids. Waiters are settled by a later statement, which sees what committed meanwhile (resolve.sql).
--
-- A step that continues ends no chain: its waiters wait on, and the key of the first step stays. Who makes a waiter at that moment
-- holds the lease (lock_live.sql), so that this DELETE waits for the edge; or comes later and finds the next step.
CREATE OR REPLACE FUNCTION {schema}.settle(
    p_reap boolean, p_ids uuid[], p_tokens uuid[], p_events text[], p_states text[], p_failures int[], p_fronts boolean[],
    p_delays float8[], p_run_ats timestamptz[], p_results text[], p_codes text[], p_messages text[], p_tracebacks text[],
    p_next uuid[], p_signals text[], p_actor text DEFAULT NULL
)
RETURNS TABLE (job_id uuid, answer text, chain uuid)
LANGUAGE plpgsql VOLATILE {hot} {paired}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_ids uuid[] := p_ids;
    v_applied uuid[];
    v_late uuid[];
    v_ended uuid[];
    v_keyed uuid[];
    v_retried bigint[];
    v_returned uuid[];
    v_returned_failures int[];
    v_returned_to bigint[];
    v_dated uuid[];
    v_repeated uuid[];
    v_of_chains uuid[];
    v_continued uuid[];
    v_suspended uuid[];
    v_begun uuid[];
    v_overruled uuid[];
    v_freed int;
    v_holder boolean := NOT p_reap AND p_actor IS NULL;
BEGIN
    {read_committed}
    -- The transaction's id before its clock and its places: the promoter's and the claimers' marks rely on it.
    PERFORM pg_current_xact_id();
    v_now := clock_timestamp();
    IF p_reap THEN
        v_ids := ARRAY(
            SELECT l.job_id FROM lease l JOIN unnest(p_ids, p_tokens) AS s(job_id, token) USING (job_id, token)
            WHERE l.job_id = ANY (p_ids) AND l.expires_at <= v_now
            ORDER BY l.job_id
            FOR UPDATE OF l SKIP LOCKED
        );
    END IF;

    IF p_events IS NULL THEN
        -- nearly every batch: all succeeded, so that the row that is deleted says all but the result
        WITH done AS (
            DELETE FROM lease l USING unnest(p_ids, p_tokens, p_results) AS s(job_id, token, result)
            WHERE l.job_id = ANY (v_ids) AND l.job_id = s.job_id AND l.token = s.token
            RETURNING l.job_id, l.token, l.lane, l.claimed_at, l.worker, l.attempt, l.failures, l.expires_at <= v_now AS late,
                l.chain, l.keyed, s.result
        ), archived AS (
            INSERT INTO archive (job_id, lane, state, finished_at, claimed_at, token, worker, attempt, failures, late, result, chain)
            SELECT d.job_id, d.lane, 'succeeded', v_now, d.claimed_at, d.token, d.worker, d.attempt, d.failures, d.late,
                coalesce(d.result, 'null'), d.chain
            FROM done d
        ), counted AS (
            INSERT INTO tally (lane, running, succeeded) SELECT d.lane, -count(*), count(*) FROM done d GROUP BY d.lane
        )
        SELECT array_agg(d.job_id), array_agg(d.job_id) FILTER (WHERE d.late), array_agg(coalesce(d.chain, d.job_id)),
            array_agg(d.job_id) FILTER (WHERE d.keyed), array_agg(d.chain) FILTER (WHERE d.chain <> d.job_id)
        INTO v_applied, v_late, v_ended, v_keyed, v_of_chains
        FROM done d;
    ELSE
        WITH gone AS (
            DELETE FROM lease l USING unnest(p_ids, p_tokens) AS s(job_id, token)
            WHERE l.job_id = ANY (v_ids) AND l.job_id = s.job_id AND l.token = s.token
            RETURNING l.*
        ), done AS MATERIALIZED (
            -- a cancel that was asked for wins over everything that would let the job, or its chain, live on
            SELECT g.job_id, g.token, g.lane, g.place, g.claimed_at, g.worker, g.attempt, g.keyed, g.dated, v_holder AND g.expires_at <= v_now AS late, s.n,
                CASE WHEN c.wins THEN 'canceled' ELSE s.event END AS event,
                CASE WHEN c.wins THEN 'canceled' ELSE s.state END AS state,
                CASE WHEN c.wins THEN 'CANCELED' ELSE s.code END AS code,
                CASE WHEN c.wins THEN g.cancel ELSE s.message END AS message,
                c.wins, s.failures, s.front, s.delay, s.run_at, s.traceback,
                CASE WHEN s.event = 'succeeded' THEN coalesce(s.result, 'null') END AS result,
                CASE WHEN s.event = 'continued' AND NOT c.wins THEN coalesce(g.chain, g.job_id) ELSE g.chain END AS chain, s.next
            FROM gone g
            JOIN unnest(p_ids, p_tokens, p_events, p_states, p_failures, p_fronts, p_delays, p_run_ats, p_results, p_codes, p_messages,
                    p_tracebacks, p_next) WITH ORDINALITY
                AS s(job_id, token, event, state, failures, front, delay, run_at, result, code, message, traceback, next, n)
                ON s.job_id = g.job_id AND s.token = g.token
            CROSS JOIN LATERAL (SELECT g.cancel IS NOT NULL AND (s.state NOT IN ({terminal}) OR s.event = 'continued') AS wins) c
        ), archived AS (
            INSERT INTO archive (job_id, lane, state, finished_at, claimed_at, token, worker, attempt, failures, late, code, message, result,
                chain, continued_by)
            -- the token of a step that continued is in its attempt: here it would say that it succeeded
            SELECT d.job_id, d.lane, d.state, v_now, d.claimed_at, CASE WHEN v_holder AND d.event <> 'continued' THEN d.token END,
                d.worker, d.attempt, d.failures, d.late, d.code, d.message, d.result, d.chain,
                CASE WHEN d.event = 'continued' THEN d.next END
            FROM done d WHERE d.state IN ({terminal})
        ), rested AS (
            INSERT INTO scheduled (job_id, run_at, attempt, failures)
            -- never in the past, or it would lie below the promoter's base
            SELECT d.job_id, greatest(v_now, coalesce(d.run_at, v_now + d.delay * interval '1 s')), d.attempt, d.failures
            FROM done d WHERE d.state = 'scheduled'
        ), returned AS (
            INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved, entered)
            SELECT CASE WHEN d.front THEN -j.line ELSE j.line END, CASE WHEN d.front THEN d.place ELSE nextval('place') END,
                d.job_id, v_now, d.attempt, d.failures, true, CASE WHEN d.front THEN nextval('place') END
            FROM (SELECT * FROM done WHERE state = 'ready' ORDER BY n) d
            CROSS JOIN LATERAL (SELECT line_of(entry, lane, d.failures) AS line FROM job WHERE job.id = d.job_id LIMIT 1) j
        ), recorded AS (
            INSERT INTO attempt (job_id, attempt, event, claimed_at, ended_at, worker, late, token, code, message, traceback)
            SELECT d.job_id, d.attempt, d.event, d.claimed_at, v_now, d.worker, d.late, CASE WHEN v_holder THEN d.token END, d.code,
                d.message, d.traceback
            FROM done d WHERE d.event <> 'succeeded'
        ), logged AS (
            INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
            SELECT d.job_id, v_now, d.attempt, d.event, d.state,
                CASE WHEN p_reap THEN 'reaper' WHEN v_holder THEN (SELECT w.name FROM worker w WHERE w.no = d.worker) ELSE p_actor END,
                brief(concat_ws(': ', d.code, nullif(d.message, '')))
            FROM (SELECT * FROM done WHERE event <> 'succeeded' ORDER BY n) d
        ), counted AS (
            INSERT INTO tally (lane, running, scheduled, ready, succeeded, failed, canceled)
            SELECT d.lane, -count(*), count(*) FILTER (WHERE d.state = 'scheduled'), count(*) FILTER (WHERE d.state = 'ready'),
                count(*) FILTER (WHERE d.state = 'succeeded'), count(*) FILTER (WHERE d.state = 'failed'),
                count(*) FILTER (WHERE d.state = 'canceled')
            FROM done d GROUP BY d.lane
        )
        SELECT array_agg(d.job_id), array_agg(d.job_id) FILTER (WHERE d.late),
            array_agg(coalesce(d.chain, d.job_id)) FILTER (WHERE d.state IN ({terminal}) AND d.event <> 'continued'),
            array_agg(d.job_id) FILTER (WHERE d.keyed AND d.state IN ({terminal}) AND (d.event <> 'continued' OR d.chain <> d.job_id)),
            array_agg(d.chain) FILTER (WHERE d.chain <> d.job_id AND d.state IN ({terminal}) AND d.event <> 'continued'),
            array_agg(d.job_id) FILTER (WHERE d.event = 'continued'),
            array_agg(d.job_id) FILTER (WHERE d.event = 'suspended'),
            array_agg(d.lane) FILTER (WHERE d.state = 'ready' AND d.failures > 0), array_agg(d.job_id) FILTER (WHERE d.state = 'ready'),
            array_agg(d.failures) FILTER (WHERE d.state = 'ready'),
            array_agg(d.job_id) FILTER (WHERE d.dated AND d.state NOT IN ({terminal}) AND d.event <> 'suspended'),
            array_agg(d.job_id) FILTER (WHERE d.dated AND d.event = 'suspended'), array_agg(d.job_id) FILTER (WHERE d.wins)
        INTO v_applied, v_late, v_ended, v_keyed, v_of_chains, v_continued, v_suspended, v_retried, v_returned, v_returned_failures, v_dated, v_begun, v_overruled
        FROM done d;
    END IF;

    IF v_retried IS NOT NULL THEN
        PERFORM know_retries(v_retried);
    END IF;
    IF v_returned IS NOT NULL THEN
        v_returned_to := ARRAY(
            SELECT line_of(j.entry, j.lane, r.failures)
            FROM unnest(v_returned, v_returned_failures) AS r(id, failures)
            CROSS JOIN LATERAL (SELECT job.entry, job.lane FROM job WHERE job.id = r.id LIMIT 1) j
            WHERE j.entry <> j.lane
        );
        IF v_returned_to <> '{{}}' THEN
            PERFORM rouse(v_returned_to);
        END IF;
    END IF;
    IF v_dated IS NOT NULL THEN
        PERFORM set_deadlines(v_dated, v_now);
    END IF;
    IF v_begun IS NOT NULL THEN
        UPDATE job SET start_by = NULL WHERE job.id = ANY (v_begun);  -- it has started, and may sleep for as long as it likes
    END IF;
    IF v_keyed IS NOT NULL OR v_of_chains IS NOT NULL THEN
        PERFORM free_keys(v_keyed || v_of_chains);
    END IF;
    IF p_next IS NOT NULL THEN
        RETURN QUERY SELECT l.job_id, 'continued', l.chain FROM link(v_continued) l;
    END IF;
    IF p_signals IS NOT NULL THEN
        PERFORM suspend(v_suspended, p_ids, p_signals);
    END IF;
    IF EXISTS (SELECT FROM blocker b WHERE b.chain_id = ANY (v_ended) AND NOT b.ended) THEN
        SELECT r.freed INTO v_freed FROM resolve(v_ended) r;
        IF v_freed > 0 THEN
            RETURN QUERY SELECT v_ended[1], 'freed', NULL::uuid;
        END IF;
    END IF;

    RETURN QUERY SELECT a.id, 'late', NULL::uuid FROM unnest(v_late) AS a(id);
    IF v_overruled IS NOT NULL THEN
        RETURN QUERY SELECT a.id, 'canceled', NULL::uuid FROM unnest(v_overruled) AS a(id);
    END IF;
    IF cardinality(p_ids) > coalesce(cardinality(v_applied), 0) THEN
        SELECT array_agg(r.job_id) INTO v_repeated
        FROM (
            SELECT a.job_id, a.token FROM archive a WHERE a.job_id = ANY (p_ids)
            UNION
            SELECT a.job_id, a.token FROM attempt a WHERE a.job_id = ANY (p_ids)
        ) r JOIN unnest(p_ids, p_tokens) AS s(job_id, token) USING (job_id, token)
        WHERE NOT p_reap;
        RETURN QUERY
        SELECT s.id, CASE WHEN s.id = ANY (v_repeated) THEN 'repeated' ELSE 'stale' END, NULL::uuid
        FROM unnest(p_ids) AS s(id) WHERE s.id <> ALL (coalesce(v_applied, '{{}}'));
    END IF;
END
$$;
