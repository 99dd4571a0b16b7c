-- Returns the id of the ghost user, which has user type 5, and creates the ghost user if
-- there is none. Concurrent calls create only one.
--
-- Raises SX014 if there is no ghost user and it cannot create one: another column needs a
-- value, or a unique value was taken at each attempt. At REPEATABLE READ and above it
-- creates none, because the transaction would not see a ghost user that another session
-- has just created.
CREATE OR REPLACE FUNCTION "sexton".ghost_user()
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    ghost bigint;
    unknown text;
    dates text;
    ghost_name text := 'ghost';
    name_number integer := 0;
    ghost_address text := 'ghost@example.com';
    address_number integer := 0;
    attempts CONSTANT integer := 10;
BEGIN
    SELECT users.id INTO ghost FROM "public".users WHERE users.user_type = 5 ORDER BY users.id LIMIT 1;

    IF FOUND THEN
        RETURN ghost;
    END IF;

    IF pg_catalog.current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX014',
            MESSAGE = pg_catalog.format('there is no ghost user, and none can be created at isolation level %s', pg_catalog.current_setting('transaction_isolation')),
            HINT = 'Call "sexton".ghost_user() once in a transaction of its own.';
    END IF;

    -- The key is "sexghost" in ASCII. A session that has waited here queries again with a
    -- new snapshot.
    PERFORM pg_catalog.pg_advisory_xact_lock(8315184672538588020);

    SELECT users.id INTO ghost FROM "public".users WHERE users.user_type = 5 ORDER BY users.id LIMIT 1;

    IF FOUND THEN
        RETURN ghost;
    END IF;

    SELECT
        pg_catalog.string_agg(attname, ', ' ORDER BY attnum)
            FILTER (WHERE attnotnull AND NOT atthasdef AND attidentity = '' AND attname NOT IN
                ('username', 'email', 'name', 'state', 'user_type', 'admin', 'created_at', 'updated_at')),
        pg_catalog.string_agg(pg_catalog.format(', %I', attname), '' ORDER BY attnum)
            FILTER (WHERE attname IN ('created_at', 'updated_at'))
    INTO unknown, dates
    FROM pg_catalog.pg_attribute
    WHERE attrelid = '"public".users'::pg_catalog.regclass AND attnum > 0 AND NOT attisdropped;

    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX014',
            MESSAGE = pg_catalog.format('the ghost user cannot be created: table users requires a value for %s', unknown),
            HINT = 'Insert a user with user_type 5, or set defaults for these columns.';
    END IF;

    FOR attempt IN 1..attempts LOOP
        WHILE EXISTS (SELECT FROM "public".users WHERE pg_catalog.lower(users.username) = ghost_name) LOOP
            name_number := name_number + 1;
            ghost_name := 'ghost' || name_number;
        END LOOP;

        WHILE EXISTS (SELECT FROM "public".users WHERE pg_catalog.lower(users.email) = ghost_address) LOOP
            address_number := address_number + 1;
            ghost_address := 'ghost' || address_number || '@example.com';
        END LOOP;

        BEGIN
            EXECUTE pg_catalog.format(
                'INSERT INTO %s (username, email, name, state, user_type, admin%s) VALUES ($1, $2, ''Ghost User'', ''active'', 5, false%s) RETURNING id',
                '"public".users', dates, pg_catalog.regexp_replace(coalesce(dates, ''), '[a-z_]+', 'now()', 'g'))
            INTO ghost
            USING ghost_name, ghost_address;

            RETURN ghost;
        EXCEPTION
            WHEN unique_violation THEN
                -- Another session has inserted this name, or the sequence of ids is lower
                -- than the highest id.
                IF attempt = attempts THEN
                    RAISE EXCEPTION USING
                        ERRCODE = 'SX014',
                        MESSAGE = pg_catalog.format('the ghost user cannot be created: %s', SQLERRM),
                        HINT = 'Insert a user with user_type 5. If its id was taken, set the sequence of users.id to the last id.';
                END IF;
        END;
    END LOOP;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".ghost_user() IS 'Sexton: finds or creates the ghost user, which receives the contributions of deleted users';
