-- The number of the attempt that took it: a holder whose answer got lost knows its own lease by it. Each process counts upward from a random one.
-- Some builds before the first release made it with the table.
ALTER TABLE "sexton".leases ADD COLUMN IF NOT EXISTS attempt bigint NOT NULL DEFAULT 0;
