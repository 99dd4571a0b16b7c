(pg_catalog.pg_identify_object_as_address('pg_catalog.pg_class'::pg_catalog.regclass, TG_RELID, "key_number")).object_names[3]
        OPERATOR(pg_catalog.=) 'key_name'
