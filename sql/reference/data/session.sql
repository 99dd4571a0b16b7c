-- These temporary functions are for the INSERT statements of the data. Nothing is random,
-- so that two loads are equal: every choice is a hash of the row's number and a salt,
-- which distinguishes the choices of one row.
SET TimeZone = 'UTC';
SET synchronous_commit = off;
-- Each INSERT loads only some rows of its table. It should find the rows that they refer
-- to by primary keys. A hash or merge join would read the complete table each time.
SET enable_hashjoin = off;
SET enable_mergejoin = off;

-- Returns 1 to size, with equal probability.
CREATE FUNCTION pg_temp.pick(n bigint, salt bigint, size bigint)
RETURNS bigint
LANGUAGE sql
IMMUTABLE
AS 'SELECT 1 + (hashint8extended(n, salt) & 9223372036854775807) % size';

-- Returns 1 to size, with low numbers far more frequent: number 1 has a share of size ^
-- (-1 / steepness).
CREATE FUNCTION pg_temp.skewed(n bigint, salt bigint, size bigint, steepness double precision)
RETURNS bigint
LANGUAGE sql
IMMUTABLE
AS 'SELECT 1 + floor(size * power(
    ((hashint8extended(n, salt) >> 11) & 9007199254740991) / 9007199254740992::double precision, steepness))::bigint';

-- Returns the number of a person. Low numbers are far more frequent, because a few people
-- do most of the work.
CREATE FUNCTION pg_temp.person(n bigint, salt bigint, people bigint)
RETURNS bigint
LANGUAGE sql
IMMUTABLE
AS 'SELECT pg_temp.skewed(n, salt, people, 3)';

-- Returns the number of a project. Project 1 has at least a tenth of all rows.
CREATE FUNCTION pg_temp.project(n bigint, salt bigint, projects bigint)
RETURNS bigint
LANGUAGE sql
IMMUTABLE
AS 'SELECT CASE WHEN n % 10 = 1 THEN 1 ELSE pg_temp.skewed(n, salt, projects, 1.5) END';

-- Returns the time of row n if size rows are distributed evenly over the year before
-- today.
CREATE FUNCTION pg_temp.moment(n bigint, size bigint, today timestamptz)
RETURNS timestamptz
LANGUAGE sql
STABLE
AS 'SELECT today - interval ''525600 minutes'' * ((size - n)::double precision / size)';

-- Returns the number of the parent of part n. Every fourth parent has three parts, and
-- each other parent has one.
CREATE FUNCTION pg_temp.whole(n bigint)
RETURNS bigint
LANGUAGE sql
IMMUTABLE
AS 'SELECT (n - 1) / 6 * 4 + least((n - 1) % 6, 3) + 1';

-- Returns the index of part n within its parent, from 0.
CREATE FUNCTION pg_temp.part(n bigint)
RETURNS bigint
LANGUAGE sql
IMMUTABLE
AS 'SELECT greatest((n - 1) % 6 - 3, 0)';

-- Returns the SHA of a commit.
CREATE FUNCTION pg_temp.sha(n bigint, salt bigint)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT lpad(to_hex(hashint8extended(n, salt)), 16, '0')
        || lpad(to_hex(hashint8extended(n, salt + 1000)), 16, '0')
        || right(to_hex(hashint8extended(n, salt + 2000) | 2147483648), 8)
$$;

CREATE FUNCTION pg_temp.title(n bigint, salt bigint)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT (ARRAY['Fix', 'Speed up', 'Document', 'Add tests for', 'Remove', 'Simplify', 'Retry', 'Translate',
            'Rate-limit', 'Paginate', 'Cache', 'Clean up'])[pg_temp.pick(n, salt, 12)]
        || (ARRAY[' the slow ', ' the flaky ', ' the deprecated ', ' the empty ', ' the new ', ' the failing ', ' ', ' '])[pg_temp.pick(n, salt + 1, 8)]
        || (ARRAY['sign-in page', 'pipeline editor', 'search index', 'webhook retries', 'merge train', 'release notes',
            'label picker', 'import of members', 'runner registration', 'audit log', 'diff viewer', 'issue board',
            'todo counter', 'avatar upload', 'package registry', 'group settings'])[pg_temp.pick(n, salt + 2, 16)]
        || (ARRAY['', '', ' on mobile', ' for large projects', ' after an upgrade', ' behind a proxy'])[pg_temp.pick(n, salt + 3, 6)]
$$;

CREATE FUNCTION pg_temp.remark(n bigint, salt bigint)
RETURNS text
LANGUAGE sql
IMMUTABLE
AS $$
    SELECT (ARRAY['Looks good to me.', 'I can reproduce this on main.', 'Could we split this in two?', 'Thanks, that was quick!',
            'This needs a changelog entry.', 'Rebased onto main.', 'The failing job is unrelated.', 'Not sure about the name.'])[pg_temp.pick(n, salt, 8)]
        || (ARRAY['', ' See the linked run for details.', ' Happy to pair on it tomorrow.', ' We had the same in the last release, and the cause was a missing index.',
            ' Let us wait for the next milestone.'])[pg_temp.pick(n, salt + 1, 5)]
$$;
