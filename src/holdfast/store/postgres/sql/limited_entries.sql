-- The entries of lanes without a key that a limit of their queue or task holds for: they are claimed from by claim_limited.sql alone. NULL where
-- nobody has set such a limit, which two pages tell. What people have set of a queue and speaks of its weight alone is none.
CREATE OR REPLACE FUNCTION {schema}.limited_entries()
RETURNS bigint[]
LANGUAGE plpgsql STABLE {hot}
AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM limits WHERE kind <> 'key') THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT l.entry FROM limits t JOIN lane l ON l.queue = t.name AND NOT l.keyed WHERE t.kind = 'queue'
            AND (t.declared IS NOT NULL OR t.override::json ->> 'weight' IS NULL OR coalesce(t.override::json ->> 'most', t.override::json ->> 'rate') IS NOT NULL)
        UNION
        SELECT l.entry FROM limits t JOIN lane l ON l.task = t.name AND NOT l.keyed WHERE t.kind = 'task'
    );
END
$$;
