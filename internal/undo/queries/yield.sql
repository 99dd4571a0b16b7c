-- Ends the lease of a worker, whose batches the fence then refuses: what it deletes by mistake is not to go on.
UPDATE "sexton".leases SET expires_at = '-infinity' WHERE key = $1 AND holder <> $2
