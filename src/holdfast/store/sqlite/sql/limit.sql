-- name: any
SELECT EXISTS (SELECT 1 FROM holdfast_limits)

-- name: some
SELECT kept.id, kept.declared, kept.override, kept.tokens, kept.filled_at
FROM json_each(?) AS known
CROSS JOIN holdfast_limits AS kept ON kept.id = known.value

-- name: running
SELECT own.queue, own.task, entry.requires, entry.task = '', count(*)
FROM holdfast_lease AS lease
CROSS JOIN holdfast_lane AS own ON own.lane = lease.lane
CROSS JOIN holdfast_lane AS entry ON entry.lane = lease.entry
GROUP BY lease.lane, lease.entry

-- name: keep
INSERT INTO holdfast_limits (id, kind, name, key, tokens, filled_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET tokens = excluded.tokens, filled_at = excluded.filled_at

-- name: declare
INSERT INTO holdfast_limits (id, kind, name, key, declared) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET declared = excluded.declared

-- name: undeclare
UPDATE holdfast_limits SET declared = NULL WHERE id = ?

-- name: set
INSERT INTO holdfast_limits (id, kind, name, key, override, override_by, override_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    override = excluded.override, override_by = excluded.override_by, override_at = excluded.override_at

-- name: said
SELECT kind, name, key
FROM holdfast_limits
WHERE declared IS NOT NULL OR override IS NOT NULL

-- name: of_queues
SELECT name, override
FROM holdfast_limits
WHERE kind = 'queue' AND (declared IS NOT NULL OR override IS NOT NULL) AND override IS NOT NULL

-- name: shown
SELECT declared, override, override_by, override_at, tokens, filled_at FROM holdfast_limits WHERE id = ?

-- name: forget
-- A bucket that nothing was taken from for so long is full again, whatever its rate is within reason; and says nothing else.
DELETE FROM holdfast_limits WHERE declared IS NULL AND override IS NULL AND filled_at < ?
