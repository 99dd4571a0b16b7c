SELECT prepared.transaction FROM pg_catalog.pg_prepared_xacts AS prepared
WHERE prepared.database OPERATOR(pg_catalog.=) pg_catalog.current_database()
