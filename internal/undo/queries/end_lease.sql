-- Ends the lease of a worker, so that a mistaken deletion does not continue. The fence then refuses the worker's batches. Holders whose name begins
-- with $2 are undo processes. Their leases are kept.
UPDATE "sexton".leases SET expires_at = '-infinity' WHERE key = $1 AND NOT pg_catalog.starts_with(holder, $2)
