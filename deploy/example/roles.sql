-- The role of the worker. `sexton grants` gives it its privileges. The password comes from the environment of psql.
\getenv password WORKER_PASSWORD
CREATE ROLE sexton LOGIN PASSWORD :'password';
