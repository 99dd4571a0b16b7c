-- Reports whether a placeholder can be offered now. An eligible row cannot be offered if
-- its job is waiting or running, because the user has a second row or the job is being
-- retried.
(EXISTS (SELECT FROM {detail} WHERE {untried} AND {unqueued} AND NOT {waits})
    OR EXISTS (SELECT FROM {detail} WHERE {tried} AND {unqueued} AND NOT {waits}))
