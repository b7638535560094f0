-- name: lines
SELECT no, at, actor, action, targets, count, detail
FROM holdfast_audit
WHERE no < :before
ORDER BY no DESC
LIMIT :limit

-- name: lines_by
SELECT no, at, actor, action, targets, count, detail
FROM holdfast_audit
WHERE no < :before AND actor = :actor
ORDER BY no DESC
LIMIT :limit

-- name: lines_of
SELECT no, at, actor, action, targets, count, detail
FROM holdfast_audit
WHERE no < :before AND action = :action
ORDER BY no DESC
LIMIT :limit

-- name: lines_by_of
SELECT no, at, actor, action, targets, count, detail
FROM holdfast_audit
WHERE no < :before AND actor = :actor AND action = :action
ORDER BY no DESC
LIMIT :limit
