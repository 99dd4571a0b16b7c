-- Some placeholder can be offered now. One whose job waits cannot, though it may be eligible: it has a second row, or its job is being
-- retried.
(EXISTS (SELECT FROM {detail} WHERE {untried} AND {unqueued} AND NOT {waits})
    OR EXISTS (SELECT FROM {detail} WHERE {tried} AND {unqueued} AND NOT {waits}))
