-- The worker connects as this role. `sexton grants` grants the role its privileges. psql
-- reads the password from its environment.
\getenv password WORKER_PASSWORD
CREATE ROLE sexton LOGIN PASSWORD :'password';
