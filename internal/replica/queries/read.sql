-- A sender that is hidden shows as a row whose state is null. One that only receives, such as pg_receivewal, or copies
-- the cluster never replays.
SELECT sender.state IS NULL,
    coalesce(sender.application_name, ''),
    coalesce(pg_catalog.host(sender.client_addr), ''),
    coalesce(extract(epoch FROM sender.replay_lag), 0)::double precision,
    coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), sender.replay_lsn), 0)::bigint
FROM pg_catalog.pg_stat_replication AS sender
WHERE (sender.state IS NULL OR sender.replay_lsn IS NOT NULL)
  AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_replication_slots AS slot
      WHERE slot.active_pid = sender.pid AND slot.slot_type = 'logical'
  )
ORDER BY 2, 3;
