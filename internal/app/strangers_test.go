package app_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// trapsSQL creates functions and operators in public that fit calls by a bare name at least as well as Postgres's own, each of which
// counts that it ran, and raises. Functions have the signatures of those that the program's texts name ($1); where one takes anything,
// texts and numbers. Operators take what no operator of Postgres's takes just so. Types have the names of Postgres's, and a type of its own
// takes values of others by casts that nothing has to ask for.
const trapsSQL = `
DO $do$
DECLARE
    trap record;
BEGIN
    FOR trap IN
        SELECT proc.proname AS name, pg_catalog.replace(arguments, '"any"', taken) AS arguments, pg_catalog.pg_get_function_result(proc.oid) AS result
        FROM pg_catalog.pg_proc AS proc
        CROSS JOIN LATERAL pg_catalog.pg_get_function_identity_arguments(proc.oid) AS arguments
        CROSS JOIN LATERAL pg_catalog.unnest(CASE WHEN arguments LIKE '%"any"%' OR arguments LIKE '%anyarray%' THEN ARRAY['text', 'bigint'] ELSE ARRAY[''] END) AS taken
        WHERE proc.pronamespace = 'pg_catalog'::regnamespace AND proc.proname = ANY (pg_catalog.string_to_array(pg_catalog.current_setting('traps.names'), ','))
    LOOP
        BEGIN
            EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $trap$ BEGIN
                PERFORM pg_catalog.nextval(''public.ran''); RAISE EXCEPTION ''the stranger''''s %%'', %L; END $trap$',
                trap.name, trap.arguments, trap.result, trap.name);
        EXCEPTION WHEN OTHERS THEN NULL; -- Pseudo-types that no function in this language takes, and ordered-set aggregates.
        END;
    END LOOP;

    FOR trap IN
        SELECT operator.name, a.name AS "left", b.name AS "right"
        FROM pg_catalog.unnest(ARRAY['=', '<>', '<', '<=', '>', '>=', '||', '+', '-', '->', '->>', '~~', '@>', '^', '*', '/', '&&', '&']) AS operator (name)
        CROSS JOIN pg_catalog.unnest(ARRAY['text', 'varchar', 'name', 'int2', 'int4', 'int8', 'timestamptz', 'date', 'jsonb', 'oid', 'regclass', '"char"', 'text[]', 'int8[]', 'float8', 'bool']::regtype[]) AS a (name)
        CROSS JOIN pg_catalog.unnest(ARRAY['text', 'varchar', 'name', 'int2', 'int4', 'int8', 'timestamptz', 'date', 'jsonb', 'oid', 'regclass', '"char"', 'text[]', 'int8[]', 'float8', 'bool']::regtype[]) AS b (name)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_operator AS own WHERE own.oprname = operator.name AND own.oprleft = a.name AND own.oprright = b.name)
        UNION
        SELECT operator.name, a.name, b.name
        FROM pg_catalog.unnest(ARRAY['=', '<>']) AS operator (name)
        CROSS JOIN pg_catalog.unnest(ARRAY['xid', 'xid[]', 'tid', 'tid[]', 'oid[]', 'regclass[]', 'uuid', 'bytea']::regtype[]) AS a (name)
        CROSS JOIN pg_catalog.unnest(ARRAY['xid', 'xid[]', 'tid', 'tid[]', 'oid[]', 'regclass[]', 'uuid', 'bytea', 'oid', 'regclass', 'int4', 'text']::regtype[]) AS b (name)
    LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(%s, %s) RETURNS boolean LANGUAGE plpgsql AS $trap$ BEGIN
            PERFORM pg_catalog.nextval(''public.ran''); RAISE EXCEPTION ''the stranger''''s %%'', %L; END $trap$',
            'trap ' || trap.name, trap."left", trap."right", trap."left" || ' ' || trap.name || ' ' || trap."right");
        EXECUTE pg_catalog.format('CREATE OPERATOR public.%s (FUNCTION = public.%I, LEFTARG = %s, RIGHTARG = %s)',
            trap.name, 'trap ' || trap.name, trap."left", trap."right");
    END LOOP;

    CREATE TYPE public.trap AS (value text);
    FOR trap IN
        SELECT type.name FROM pg_catalog.unnest(ARRAY['text', 'varchar', 'int2', 'int4', 'int8', 'timestamptz', 'date', 'oid', 'regclass', 'tid', 'name']) AS type (name)
    LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(pg_catalog.%I) RETURNS public.trap LANGUAGE plpgsql AS $trap$ BEGIN
            PERFORM pg_catalog.nextval(''public.ran''); RAISE EXCEPTION ''the stranger''''s cast of %%'', %L; END $trap$',
            'trap', trap.name, trap.name);
        EXECUTE pg_catalog.format('CREATE CAST (pg_catalog.%I AS public.trap) WITH FUNCTION public.trap(pg_catalog.%1$I) AS IMPLICIT', trap.name);
    END LOOP;
    FOR trap IN
        SELECT operator.name FROM pg_catalog.unnest(ARRAY['=', '<>', '<', '>', '||', '&']) AS operator (name)
    LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(public.trap, public.trap) RETURNS boolean LANGUAGE sql AS ''SELECT true''', 'trap ' || trap.name);
        EXECUTE pg_catalog.format('CREATE OPERATOR public.%s (FUNCTION = public.%I, LEFTARG = public.trap, RIGHTARG = public.trap)',
            trap.name, 'trap ' || trap.name);
    END LOOP;
    CREATE FUNCTION public.trapped() RETURNS boolean LANGUAGE plpgsql AS $trap$ BEGIN
        PERFORM pg_catalog.nextval('public.ran'); RAISE EXCEPTION 'the stranger''s type'; END $trap$;
    FOR trap IN
        SELECT type.name
        FROM pg_catalog.unnest(ARRAY['text', 'int2', 'int8', 'float8', 'timestamptz', 'date', 'oid', 'regclass', 'regtype', 'tid', 'name', 'jsonb', 'uuid', 'bytea', 'xid']) AS type (name)
    LOOP
        EXECUTE pg_catalog.format('CREATE DOMAIN public.%I AS pg_catalog.%1$I CHECK (public.trapped())', trap.name);
    END LOOP;
END;
$do$`

// calls are the names of all functions that the program's texts call.
func calls(t *testing.T) []string {
	t.Helper()
	call := regexp.MustCompile(`\b([a-z_0-9]{3,})\(`)
	found := map[string]bool{}
	for _, root := range []string{"../../internal", "../../river_jobs", "../../triggers", "../../sql"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "_test.go") || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".sql" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range call.FindAllStringSubmatch(string(text), -1) {
				found[match[1]] = true
			}
			return err
		}))
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	return names
}

// No code of a role runs with the worker's or the operator's rights because it may create in a schema of somebody's path.
func TestNoStrangersCodeRuns(t *testing.T) {
	t.Parallel()
	for _, as := range []string{"worker", "superuser"} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			s := roles(t)
			s.as(t, s.application, "DELETE FROM projects WHERE id = 1", "SELECT sexton.delete_user(1, 2)", "SELECT sexton.schedule_group_deletion(1, 2)")
			s.Exec("UPDATE groups SET marked_for_deletion_on = current_date - 30; UPDATE group_deletion_schedules SET marked_for_deletion_on = current_date - 30")
			s.Exec(`
				INSERT INTO organizations (id, name, path) VALUES (1, 'one', 'one') ON CONFLICT DO NOTHING;
				INSERT INTO users (id, username, email, name, user_type) VALUES (7, 'import', 'import@example.com', 'Import', 15);
				INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id) VALUES (7, 1);
				INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (7, 2, 'title', 'branch', 'main');
				INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) VALUES (1, 7, 2, 1);
				INSERT INTO merge_request_diff_files
					(merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, diff)
				VALUES (1, 0, 2, true, false, false, false, '0', '100644', 'a', 'text')`)
			stranger := s.CreateRole()
			s.Exec("CREATE SEQUENCE ran; GRANT ALL ON SEQUENCE ran TO PUBLIC; GRANT CREATE ON SCHEMA public TO " + pgx.Identifier{stranger}.Sanitize())
			s.as(t, stranger, "SET search_path = pg_catalog", "SELECT set_config('traps.names', '"+strings.Join(calls(t), ",")+"', false)", trapsSQL)
			require.Greater(t, pgtest.Scalar[int64](t, s.Database, "SELECT pg_catalog.count(*) FROM pg_catalog.pg_proc WHERE pronamespace = 'public'::regnamespace"), int64(1000))

			// Passes look at it, since it may yet bring children of parents that are gone.
			s.Exec("BEGIN; UPDATE issues SET title = 'changed' WHERE id = 3; PREPARE TRANSACTION '" + stranger + "'")
			defer s.Exec("ROLLBACK PREPARED '" + stranger + "'")

			// In batches the path is the application's, and this one has its own functions before Postgres's.
			s.environ = append(s.environ, "SEXTON_DATABASES__MAIN__SEARCH_PATH=public, pg_catalog")
			url := s.URL
			if as == "worker" {
				url = s.AsRole(s.worker)
			}
			for _, command := range [][]string{
				{"status"},
				{"plan"},
				{"doctor"},
				{"job", "run", moveKind, "--args", `{"diff_id": 1}`},
				{"job", "run", "import_delete_placeholder_user", "--args", `{"user_id": 7}`},
				{"job", "list"},
				{"migrate", "status"},
				{"triggers", "status"},
				{"tombstones", "list"},
				{"failures", "list"},
				{"audit"},
				{"pause", kind},
				{"resume", kind},
				{"job", "run", kind},
				{"job", "run", "users_migrate_records_to_ghost_user_in_batches"},
				{"job", "run", "import_placeholder_user_cleanup"},
				{"job", "run", "adjourned_group_deletion"},
				{"job", "run", "group_destroy", "--args", `{"group_id": 1, "user_id": 2}`},
				{"job", "run", "schedule_migrate_external_diffs"},
			} {
				r := s.run(append(command, "--database-url", url)...)
				if r.code != 0 && command[0] != "doctor" || strings.Contains(r.stdout+r.stderr, "stranger's") {
					t.Errorf("%v: exit %d\n%s\n%s", command, r.code, r.stdout, r.stderr)
				}
			}
			require.Equal(t, "false", pgtest.Scalar[string](t, s.Database, "SELECT is_called::pg_catalog.text FROM public.ran"), "a stranger's code ran")
		})
	}
}
