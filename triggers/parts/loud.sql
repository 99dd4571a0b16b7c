EXISTS (
                    SELECT
                    FROM pg_catalog.pg_event_trigger AS other
                    JOIN pg_catalog.pg_proc AS code ON code.oid = other.evtfoid AND NOT code.prosecdef
                    WHERE other.evtenabled IN ('A', 'R') AND other.evtevent IN ('ddl_command_start', 'ddl_command_end'))
