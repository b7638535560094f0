-- Has lanes of keys looked at again, as something enters them. To be called in the transaction in which it does, after it has (rest.sql).
--
-- The retries of a key (entry | 1) are a lane that is known from the first of them on.
--
-- That may be a caller's, and stay open for long: so nothing is locked against others who enter something. A lane that rests is given a second row that
-- does not; there may be several for a while, and whoever looks takes them for one.
CREATE OR REPLACE FUNCTION {schema}.rouse(p_entries bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
BEGIN
    -- who is putting one of them to rest is waited for; the next statement sees what became of it
    PERFORM FROM lane l WHERE l.entry = ANY (p_entries) AND l.keyed FOR KEY SHARE;
    INSERT INTO lane (id, entry, queue, task, priority, requires)
    SELECT DISTINCT l.id, e.entry, l.queue, l.task, l.priority, l.requires
    FROM unnest(p_entries) AS e(entry)
    CROSS JOIN LATERAL (SELECT * FROM lane x WHERE x.entry = e.entry & ~1::bigint AND x.keyed LIMIT 1) l
    WHERE NOT EXISTS (SELECT FROM lane a WHERE a.entry = e.entry AND NOT a.resting OFFSET 0);
END
$$;
