-- Settles the waiters of ended chains, and the waiters of the chains that end thereby, to any depth. Tells how
-- many have left `blocked`, and how many of these may run, now or at their time.
--
-- Two blockers of one waiter may end at the same moment in two transactions. Each marks its own edges, then takes the waiter's
-- row lock and decides from the value it reads under that lock. Counting open edges in one statement would strand the waiter:
-- neither transaction sees the other's.
--
-- A waiter that somebody's open transaction is replacing is not waited for beyond a moment: its edges stay open, and the doubt whether it
-- has stayed is left to who sweeps (unblock.sql).
CREATE OR REPLACE FUNCTION {schema}.resolve(p_ended uuid[], OUT gone int, OUT freed int)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_ended uuid[] := p_ended;
    v_next uuid[];
    v_patient boolean := true;
    w record;
    b blocked;
    j job;
BEGIN
    {read_committed}
    gone := 0;
    freed := 0;
    PERFORM pg_current_xact_id();
    v_now := clock_timestamp();
    WHILE cardinality(v_ended) > 0 LOOP
        v_next := '{{}}';
        FOR w IN
            WITH marked AS (
                UPDATE blocker e SET ended = true WHERE e.chain_id = ANY (v_ended) AND NOT e.ended
                RETURNING e.job_id, e.chain_id, e.position
            )
            SELECT m.job_id, count(*) AS edges, array_agg(m.chain_id ORDER BY m.position) AS chains
            FROM marked m GROUP BY m.job_id ORDER BY m.job_id
        LOOP
            IF NOT await_waiter(w.job_id, v_patient) THEN
                v_patient := false;
                UPDATE blocker e SET ended = false WHERE e.job_id = w.job_id AND e.chain_id = ANY (w.chains);
                INSERT INTO doubt (job_id, chain_id) SELECT w.job_id, c.id FROM unnest(w.chains) AS c(id) ON CONFLICT DO NOTHING;
                CONTINUE;
            END IF;
            UPDATE blocked SET remaining = remaining - w.edges WHERE job_id = w.job_id RETURNING * INTO b;
            CONTINUE WHEN NOT FOUND;  -- ended by other means
            SELECT * INTO j FROM job WHERE id = w.job_id;
            IF blocker_ended_badly(j, b, w.chains) THEN
                v_next := v_next || coalesce(j.chain_id, j.id);
                gone := gone + 1;
            ELSIF b.remaining = 0 THEN
                DELETE FROM blocked WHERE job_id = w.job_id;
                gone := gone + 1;
                freed := freed + 1;
                IF b.run_at > v_now THEN
                    INSERT INTO scheduled (job_id, run_at, attempt, failures) VALUES (w.job_id, b.run_at, 0, 0);
                    INSERT INTO tally (lane, blocked, scheduled) VALUES (j.lane, -1, 1);
                ELSE
                    INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved)
                    VALUES (j.entry, nextval('place'), w.job_id, v_now, 0, 0, true);
                    INSERT INTO tally (lane, blocked, ready) VALUES (j.lane, -1, 1);
                    IF j.entry <> j.lane THEN
                        PERFORM rouse(ARRAY[j.entry]);
                    END IF;
                END IF;
                INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
                SELECT w.job_id, v_now, 0, e.event, e.state, 'store', ''
                FROM (VALUES (true, 'unblocked:later', 'scheduled'), (false, 'unblocked', 'ready')) AS e(later, event, state)
                WHERE e.later = coalesce(b.run_at > v_now, false);
            END IF;
        END LOOP;
        v_ended := v_next;
    END LOOP;
END
$$;
