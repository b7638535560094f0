-- Adds figures to those of this minute, of this hour and of all time. In the order of their key: two callers never wait for each other
-- in a circle. Histograms come as one array, p_buckets numbers for each figure.
CREATE OR REPLACE FUNCTION {schema}.measure(
    p_queues text[], p_tasks text[], p_events text[], p_codes text[], p_counts bigint[], p_waited float8[], p_ran float8[],
    p_waits bigint[], p_runs bigint[], p_buckets int
)
RETURNS void
LANGUAGE plpgsql VOLATILE {brisk}
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO figure AS f (grain, at, queue, task, event, code, count, waited, ran, waits, runs)
    SELECT g.grain, CASE WHEN g.grain <> 'all' THEN date_trunc(g.grain, v_now, 'UTC') END, n.queue, n.task, n.event, n.code, n.count,
        n.waited, n.ran, p_waits[n.first : n.first + p_buckets - 1], p_runs[n.first : n.first + p_buckets - 1]
    FROM unnest(ARRAY['minute', 'hour', 'all']) AS g(grain)
    CROSS JOIN (
        SELECT u.*, ((u.no - 1) * p_buckets + 1)::int AS first
        FROM unnest(p_queues, p_tasks, p_events, p_codes, p_counts, p_waited, p_ran) WITH ORDINALITY
            AS u(queue, task, event, code, count, waited, ran, no)
    ) n
    ORDER BY g.grain, n.queue, n.task, n.event, n.code
    ON CONFLICT (grain, coalesce(at, '-infinity'::timestamptz), queue, task, event, code) DO UPDATE SET
        count = f.count + excluded.count, waited = f.waited + excluded.waited, ran = f.ran + excluded.ran,
        waits = ARRAY(SELECT h.a + h.b FROM unnest(f.waits, excluded.waits) WITH ORDINALITY AS h(a, b, no) ORDER BY h.no),
        runs = ARRAY(SELECT h.a + h.b FROM unnest(f.runs, excluded.runs) WITH ORDINALITY AS h(a, b, no) ORDER BY h.no);
END
$$;
