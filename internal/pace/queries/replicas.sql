-- Returns the connected standbys. The column hidden is true if the role cannot see the
-- state of a standby. Receivers that never replay WAL, such as pg_receivewal and base
-- backups, are left out. The column name is the application_name of the standby, with the
-- address if several standbys have the same application_name. All standbys without
-- cluster_name and without application_name in primary_conninfo are called walreceiver.
SELECT sender.state IS NULL AS hidden,
    CASE
        WHEN sender.name <> '' AND (sender.address = '' OR sender.alike = 1 AND sender.name <> 'walreceiver') THEN sender.name
        ELSE pg_catalog.btrim(pg_catalog.concat(sender.name, ' at ', sender.address))
    END AS name,
    coalesce(extract(epoch FROM sender.replay_lag), 0)::double precision AS seconds,
    coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), sender.replay_lsn), 0)::bigint AS bytes
FROM (
    SELECT replication.state, replication.replay_lag, replication.replay_lsn,
        coalesce(replication.application_name, '') AS name, coalesce(pg_catalog.host(replication.client_addr), '') AS address,
        pg_catalog.count(*) OVER (PARTITION BY coalesce(replication.application_name, '')) AS alike
    FROM pg_catalog.pg_stat_replication AS replication
    WHERE (replication.state IS NULL OR replication.replay_lsn IS NOT NULL)
      AND NOT EXISTS (
          SELECT FROM pg_catalog.pg_replication_slots AS slot
          WHERE slot.active_pid = replication.pid AND slot.slot_type = 'logical'
      )
) AS sender
ORDER BY sender.name, sender.address;
