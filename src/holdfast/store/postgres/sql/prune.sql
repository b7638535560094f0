-- Deletes terminal jobs that ended long enough ago, looking at p_limit archived jobs from p_after on.
-- Walks the primary key, so that dead rows behind the cursor cost nothing and no index on the time is needed.
--
-- A chain goes when its last step is looked at, with all its steps: none is ever seen without some of them. That step is locked before
-- the others are counted, so that it cannot be reopened meanwhile; and before it is asked who needs the chain, for whoever makes a
-- waiter holds that row too, and has committed or given up. A job alone is a chain of one.
CREATE OR REPLACE FUNCTION {schema}.prune(p_states text[], p_ages float8[], p_limit int, p_after uuid, OUT pruned int, OUT next uuid)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_last uuid[];
    v_chains uuid[];
    v_needed uuid[];
    v_gone uuid[];
    v_seen int;
BEGIN
    SELECT count(*), (array_agg(s.job_id ORDER BY s.job_id DESC))[1], array_agg(s.job_id) FILTER (WHERE s.old)
    INTO v_seen, next, v_last
    FROM (
        SELECT a.job_id,
            a.continued_by IS NULL AND a.finished_at < v_now - p_ages[array_position(p_states, a.state)] * interval '1 s' AS old
        FROM archive a WHERE a.job_id > p_after ORDER BY a.job_id LIMIT p_limit
    ) s;
    IF v_seen < p_limit THEN
        next := NULL;
    END IF;
    pruned := 0;
    IF v_last IS NULL THEN
        RETURN;
    END IF;
    v_chains := ARRAY(
        SELECT coalesce(a.chain, a.job_id) FROM archive a
        WHERE a.job_id = ANY (v_last) AND a.finished_at < v_now - p_ages[array_position(p_states, a.state)] * interval '1 s'
        ORDER BY a.job_id
        FOR UPDATE
    );
    v_needed := ARRAY(
        SELECT c.id FROM unnest(v_chains) AS c(id)
        CROSS JOIN LATERAL (
            -- as in needed_by.sql, for many at once
            SELECT FROM (SELECT e.job_id FROM blocker e WHERE e.chain_id = c.id OFFSET 0) b
            LEFT JOIN LATERAL (SELECT true AS ended FROM archive a WHERE a.job_id = b.job_id LIMIT 1) a ON true
            WHERE a.ended IS NULL LIMIT 1
        ) n
    );
    IF cardinality(v_needed) > 0 THEN
        v_chains := ARRAY(SELECT unnest(v_chains) EXCEPT SELECT unnest(v_needed));
    END IF;
    WITH gone AS (
        DELETE FROM archive a WHERE a.job_id = ANY (ARRAY(SELECT s.id FROM steps_of(v_chains) s)) RETURNING a.job_id, a.lane, a.state
    ), counted AS (
        INSERT INTO tally (lane, succeeded, failed, canceled)
        SELECT g.lane, -count(*) FILTER (WHERE g.state = 'succeeded'), -count(*) FILTER (WHERE g.state = 'failed'),
            -count(*) FILTER (WHERE g.state = 'canceled')
        FROM gone g GROUP BY g.lane
    )
    SELECT array_agg(g.job_id), count(*) INTO v_gone, pruned FROM gone g;
    IF v_gone IS NOT NULL THEN
        PERFORM forget(v_gone);
        DELETE FROM chain WHERE chain.id = ANY (v_chains);
    END IF;
END
$$;
