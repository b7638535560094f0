-- Sums up the tally rows of finished transactions into a new generation of totals and deletes them.
--
-- Rows below the snapshot's xmin are final: every transaction that could have written one has ended. A reader may therefore
-- begin at `upto`, and never walks the dead rows of earlier folds, which a long transaction elsewhere keeps from vacuum.
CREATE OR REPLACE FUNCTION {schema}.fold(p_least int)
RETURNS boolean
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_generation bigint;
    v_from xid8;
    v_upto xid8;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema_text}.fold', 0)) THEN
        RETURN false;
    END IF;
    SELECT generation, upto INTO v_generation, v_from FROM total ORDER BY generation DESC LIMIT 1;
    v_upto := pg_snapshot_xmin(pg_current_snapshot());
    IF v_from IS NULL OR v_from > v_upto THEN
        v_from := '0';  -- first fold, or a restored database whose transaction ids began anew
    END IF;
    IF (SELECT count(*) FROM (SELECT FROM tally t WHERE t.xid >= v_from AND t.xid < v_upto LIMIT p_least) s) < p_least THEN
        RETURN false;
    END IF;
    WITH gone AS (
        DELETE FROM tally t WHERE t.xid >= v_from AND t.xid < v_upto RETURNING *
    ), old AS (
        DELETE FROM total t WHERE t.generation = v_generation RETURNING *
    )
    INSERT INTO total
    SELECT coalesce(v_generation, 0) + 1, v_upto, s.lane, sum(s.blocked), sum(s.scheduled), sum(s.ready), sum(s.running),
        sum(s.succeeded), sum(s.failed), sum(s.canceled)
    FROM (
        SELECT lane, blocked, scheduled, ready, running, succeeded, failed, canceled FROM gone
        UNION ALL
        SELECT lane, blocked, scheduled, ready, running, succeeded, failed, canceled FROM old
    ) s
    GROUP BY s.lane;
    RETURN true;
END
$$;
