SELECT
    (SELECT coalesce(min(admin.id), 0) FROM "public".users AS admin WHERE admin.admin AND admin.user_type = 0),
    (SELECT coalesce(max(event.id), 0) FROM "sexton".events AS event)
