SELECT coalesce(min(admin.id), 0) FROM "public".users AS admin WHERE admin.admin AND admin.user_type = 0
