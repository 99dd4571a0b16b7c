-- Returns whether the role $1, or the current one if that is empty, may silence triggers. The function exists since Postgres 15.
SELECT pg_catalog.has_parameter_privilege(CASE $1::pg_catalog.text WHEN '' THEN current_user ELSE $1 END, 'session_replication_role', 'SET')
