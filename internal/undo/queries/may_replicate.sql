-- Returns whether the role $1, or the current role if $1 is empty, may silence triggers. has_parameter_privilege exists since Postgres 15.
SELECT pg_catalog.has_parameter_privilege(CASE $1::pg_catalog.text WHEN '' THEN current_user ELSE $1 END, 'session_replication_role', 'SET')
