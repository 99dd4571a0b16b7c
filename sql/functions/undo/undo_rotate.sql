-- Creates the daily partitions of the coming week and drops the expired ones, for a table
-- that is partitioned by kept_at. Rows without a daily partition are in the default
-- partition, which is truncated when all of its days have expired. Work whose lock is not
-- granted within 200 ms is left to the next call. Returns the number of partitions that
-- it created or dropped.
--
-- If coming is false, undo is off, and partitions of later days are dropped, too. If keep
-- is 0, the stored value applies. If no value was stored yet, nothing is dropped, because
-- triggers may already keep rows for a configuration that this worker does not have.
CREATE OR REPLACE FUNCTION "sexton".undo_rotate(of_table text, keep interval, coming boolean)
RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
-- text settings
AS $sexton$
DECLARE
    today CONSTANT pg_catalog.date := pg_catalog.date_trunc('day', pg_catalog.clock_timestamp())::pg_catalog.date;
    rest CONSTANT pg_catalog.text := pg_catalog.concat(of_table, '_rest');
    look CONSTANT pg_catalog.text := pg_catalog.format(
        'SELECT pg_catalog.date_trunc(''day'', pg_catalog.max(kept_at)) + $1 < pg_catalog.clock_timestamp() FROM "sexton".%I', rest);
    one pg_catalog.record;
    past boolean;
    changed integer := 0;
BEGIN
    IF of_table <> 'undo' OR NOT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext('sexton rotate'), pg_catalog.hashtext(of_table)) THEN
        RETURN 0;
    END IF;
    IF keep > interval '0' THEN
        UPDATE "sexton".undo_state AS state SET keep = undo_rotate.keep WHERE state.keep <> undo_rotate.keep;
    ELSE
        keep := (SELECT state.keep FROM "sexton".undo_state AS state);
        IF keep = interval '0' THEN
            RETURN 0;
        END IF;
    END IF;

    FOR one IN
        SELECT part.name, part.day, EXISTS (
                SELECT FROM pg_catalog.pg_class AS c
                WHERE c.relnamespace = '"sexton"'::pg_catalog.regnamespace AND c.relname = part.name
            ) AS there
        FROM (
            SELECT pg_catalog.concat(of_table, '_', pg_catalog.to_char(days.day, 'YYYYMMDD')) AS name, days.day
            FROM pg_catalog.generate_series(today, today + 7, interval '1 day') AS days (day)
            UNION
            SELECT c.relname, pg_catalog.to_date(pg_catalog.right(c.relname, 8), 'YYYYMMDD')
            FROM pg_catalog.pg_inherits AS i
            JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
            WHERE i.inhparent = pg_catalog.to_regclass(pg_catalog.format('"sexton".%I', of_table)) AND c.relname ~ '_[0-9]{8}$'
        ) AS part (name, day)
        ORDER BY part.day
    LOOP
        BEGIN
            IF one.there AND (one.day + interval '1 day' + keep < pg_catalog.clock_timestamp() OR NOT coming AND one.day > today) THEN
                EXECUTE pg_catalog.format('DROP TABLE "sexton".%I', one.name);
                changed := changed + 1;
            ELSIF coming AND NOT one.there AND one.day >= today THEN
                EXECUTE pg_catalog.format('CREATE TABLE "sexton".%I PARTITION OF "sexton".%I FOR VALUES FROM (%L) TO (%L)',
                    one.name, of_table, one.day, one.day + interval '1 day');
                changed := changed + 1;
            END IF;
        EXCEPTION WHEN lock_not_available OR check_violation OR duplicate_table THEN
            NULL;
        END;
    END LOOP;

    BEGIN
        EXECUTE look INTO past USING interval '1 day' + keep;
        IF past THEN
            EXECUTE pg_catalog.format('LOCK TABLE "sexton".%I IN ACCESS EXCLUSIVE MODE', rest);
            -- Another session may have kept rows in the default partition before the lock
            -- was granted.
            EXECUTE look INTO past USING interval '1 day' + keep;
        END IF;
        IF past THEN
            EXECUTE pg_catalog.format('TRUNCATE "sexton".%I', rest);
        END IF;
    EXCEPTION WHEN lock_not_available THEN
        NULL;
    END;

    RETURN changed;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".undo_rotate(text, interval, boolean) IS 'Sexton: creates and drops the daily partitions';
