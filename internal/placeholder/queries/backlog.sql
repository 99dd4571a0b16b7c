SELECT pending, capped, oldest_age_seconds, least(deferred, 10000), deferred_until, coalesce(deferred_reason, ''),
    given_up, deferred > 10000
FROM "sexton".placeholder_backlog($1, $2)
