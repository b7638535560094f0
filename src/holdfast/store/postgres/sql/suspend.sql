-- Has jobs that were just suspended (p_suspended, among p_ids) wait for their signals, and wakes those whose signal is there already.
--
-- Who emits a signal and who comes to wait for it take turns on its name: whoever is second sees what the first has committed,
-- for it looks in a statement of its own.
CREATE OR REPLACE FUNCTION {schema}.suspend(p_suspended uuid[], p_ids uuid[], p_signals text[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock(n.lock)
    FROM (SELECT DISTINCT hashtextextended('{schema_text}.signal.' || s.name, 0) AS lock FROM unnest(p_signals) AS s(name)
        WHERE s.name IS NOT NULL ORDER BY 1) n;
    UPDATE scheduled s SET signal = p_signals[array_position(p_ids, s.job_id)] WHERE s.job_id = ANY (p_suspended);
    PERFORM wake(ARRAY(SELECT s.name FROM signal s WHERE s.name = ANY (p_signals)), 'store');
END
$$;
