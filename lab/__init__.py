"""The fault laboratory: proof that nothing is lost and no stale write lands."""
