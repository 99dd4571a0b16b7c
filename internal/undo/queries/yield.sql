-- Ends the lease of a worker, whose batches the fence refuses after that, so that a mistaken deletion does not continue. Holders whose name begins
-- with $2 are undo processes, whose leases are kept.
UPDATE "sexton".leases SET expires_at = '-infinity' WHERE key = $1 AND NOT pg_catalog.starts_with(holder, $2)
