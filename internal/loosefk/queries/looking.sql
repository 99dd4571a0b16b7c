SELECT EXISTS (
    SELECT FROM pg_catalog.pg_stat_activity AS activity
    WHERE activity.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
      AND activity.usename OPERATOR(pg_catalog.=) current_user AND activity.application_name OPERATOR(pg_catalog.=) $1
)
