-- name: lines
SELECT no, at, actor, action, targets, count, detail
FROM holdfast_audit
WHERE no < :before AND (:actor IS NULL OR actor = :actor) AND (:action IS NULL OR action = :action)
ORDER BY no DESC
LIMIT :limit
