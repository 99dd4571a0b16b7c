SELECT organization_id, who(account_id), count(*) FROM audit_events_2026_12 GROUP BY 1, 2 ORDER BY 2;

-- any:
--   2 | cleo | 1
--   2 | ghost | 1
