-- The role of the worker. `migrate up --grant` gives it its rights. The password comes from the environment of psql.
\getenv password WORKER_PASSWORD
CREATE ROLE sexton LOGIN PASSWORD :'password';
-- To see how old the transactions of other roles are, and how far replicas are behind.
GRANT pg_read_all_stats TO sexton;
