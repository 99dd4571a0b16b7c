package root_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// trapsSQL creates functions, operators, casts and types in schema public, called traps.
// If one of Sexton's statements has an unqualified name, Postgres can resolve it to a
// trap. Each trap increments the sequence ran and raises an error.
//
// The functions have the signatures of the Postgres functions in traps.names; "any" and
// anyarray become text and bigint. The operators have combinations of types for which
// Postgres has no operator. The types have names of Postgres types. Implicit casts lead
// to the type trap.
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
                PERFORM pg_catalog.nextval(''public.ran''); RAISE EXCEPTION ''trap ran: %%'', %L; END $trap$',
                trap.name, trap.arguments, trap.result, trap.name);
        EXCEPTION WHEN OTHERS THEN NULL; -- Pseudo-types that no function in this language takes, and ordered-set aggregates.
        END;
    END LOOP;

    FOR trap IN
        SELECT operator.name, a.name AS "left", b.name AS "right"
        FROM pg_catalog.unnest(ARRAY['=', '<>', '<', '<=', '>', '>=', '||', '+', '-', '->', '->>', '~~', '@>', '^', '*', '/', '&&', '&']) AS operator (name)
        CROSS JOIN pg_catalog.unnest(pg_catalog.current_setting('traps.types')::regtype[]) AS a (name)
        CROSS JOIN pg_catalog.unnest(pg_catalog.current_setting('traps.types')::regtype[]) AS b (name)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_operator AS own WHERE own.oprname = operator.name AND own.oprleft = a.name AND own.oprright = b.name)
        UNION
        SELECT operator.name, a.name, b.name
        FROM pg_catalog.unnest(ARRAY['=', '<>']) AS operator (name)
        CROSS JOIN pg_catalog.unnest(ARRAY['xid', 'xid[]', 'tid', 'tid[]', 'oid[]', 'regclass[]', 'uuid', 'bytea']::regtype[]) AS a (name)
        CROSS JOIN pg_catalog.unnest(ARRAY['xid', 'xid[]', 'tid', 'tid[]', 'oid[]', 'regclass[]', 'uuid', 'bytea', 'oid', 'regclass', 'int4', 'text']::regtype[]) AS b (name)
    LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(%s, %s) RETURNS boolean LANGUAGE plpgsql AS $trap$ BEGIN
            PERFORM pg_catalog.nextval(''public.ran''); RAISE EXCEPTION ''trap ran: %%'', %L; END $trap$',
            'trap ' || trap.name, trap."left", trap."right", trap."left" || ' ' || trap.name || ' ' || trap."right");
        EXECUTE pg_catalog.format('CREATE OPERATOR public.%s (FUNCTION = public.%I, LEFTARG = %s, RIGHTARG = %s)',
            trap.name, 'trap ' || trap.name, trap."left", trap."right");
    END LOOP;

    CREATE TYPE public.trap AS (value text);
    FOR trap IN
        SELECT type.name FROM pg_catalog.unnest(ARRAY['text', 'varchar', 'int2', 'int4', 'int8', 'timestamptz', 'date', 'oid', 'regclass', 'tid', 'name']) AS type (name)
    LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION public.%I(pg_catalog.%I) RETURNS public.trap LANGUAGE plpgsql AS $trap$ BEGIN
            PERFORM pg_catalog.nextval(''public.ran''); RAISE EXCEPTION ''trap ran: cast of %%'', %L; END $trap$',
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
        PERFORM pg_catalog.nextval('public.ran'); RAISE EXCEPTION 'trap ran: type'; END $trap$;
    FOR trap IN
        SELECT type.name
        FROM pg_catalog.unnest(ARRAY['text', 'int2', 'int8', 'float8', 'timestamptz', 'date', 'oid', 'regclass', 'regtype', 'tid', 'name', 'jsonb', 'uuid', 'bytea', 'xid']) AS type (name)
    LOOP
        EXECUTE pg_catalog.format('CREATE DOMAIN public.%I AS pg_catalog.%1$I CHECK (public.trapped())', trap.name);
    END LOOP;
END;
$do$`

// trapTypes returns the types for which trapsSQL creates operators in all combinations.
// Only long tests use all types. Other tests use the types of keys and states.
func trapTypes() string {
	if pgtest.Long {
		return `{text,varchar,name,int2,int4,int8,timestamptz,date,jsonb,oid,regclass,"\"char\"",text[],int8[],float8,bool}`
	}
	return `{text,name,int2,int4,int8,timestamptz,oid,text[]}`
}

// calledFunctions returns all names in the source code that look like a function call.
func calledFunctions(t *testing.T) []string {
	call := regexp.MustCompile(`\b([a-z_0-9]{3,})\(`)
	found := map[string]bool{}
	for _, root := range []string{"../../../internal", "../../../river_jobs", "../../../triggers", "../../../sql"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "_test.go") || filepath.Ext(path) != ".go" &&
				filepath.Ext(path) != ".sql" {
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

// pendingWork creates work for every kind of job. The number in the format makes keys
// unique, because the statements run twice. One child table is partitioned.
const pendingWork = `
SET search_path = pg_catalog;
INSERT INTO public.users (id, username, email, name) VALUES (1%[1]d, 'u%[1]d', 'u%[1]d@example.com', 'Goes');
INSERT INTO public.users (id, username, email, name, user_type) VALUES (2%[1]d, 'i%[1]d', 'i%[1]d@example.com', 'Import', 15);
INSERT INTO public.groups (id, name, path) VALUES (1%[1]d, 'group', 'g%[1]d'), (2%[1]d, 'group', 'h%[1]d');
INSERT INTO public.projects (id, group_id, name, path) VALUES (1%[1]d, 1%[1]d, 'goes', 'goes'), (2%[1]d, 1, 'goes', 'goes-%[1]d'), (3%[1]d, 1, 'stays', 'stays-%[1]d');
INSERT INTO public.issues (id, project_id, title, author_id) VALUES (1%[1]d, 2%[1]d, 'goes', 2), (2%[1]d, 3%[1]d, 'by a user that goes', 1%[1]d);
INSERT INTO public.p_ci_builds (partition_id, commit_id, project_id, name, stage, status) VALUES (100, 1, 2%[1]d, 'a', 's', 't'), (101, 1, 2%[1]d, 'a', 's', 't');
INSERT INTO public.import_placeholder_user_details (placeholder_user_id, organization_id) VALUES (2%[1]d, 1);
INSERT INTO public.merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (1%[1]d, 3%[1]d, 'title', 'branch', 'main');
INSERT INTO public.merge_request_diffs (id, merge_request_id, project_id, files_count) VALUES (1%[1]d, 1%[1]d, 3%[1]d, 1);
INSERT INTO public.merge_request_diff_files
    (merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, diff)
VALUES (1%[1]d, 0, 3%[1]d, true, false, false, false, '0', '100644', 'a', 'text');
SELECT sexton.delete_user(1%[1]d, 2);
SELECT sexton.schedule_group_deletion(1%[1]d, 2);
UPDATE public.groups SET marked_for_deletion_on = current_date - 30 WHERE id = 1%[1]d;
UPDATE public.group_deletion_schedules SET marked_for_deletion_on = current_date - 30 WHERE group_id = 1%[1]d;
DELETE FROM public.projects WHERE id = 2%[1]d;
RESET search_path`

// workDone is a query that returns true after a worker has done the first pendingWork.
const workDone = `SELECT NOT EXISTS (SELECT FROM public.users WHERE id OPERATOR(pg_catalog.=) ANY ('{11,21}'))
	AND NOT EXISTS (SELECT FROM public.groups WHERE id OPERATOR(pg_catalog.=) 11)
	AND NOT EXISTS (SELECT FROM public.issues WHERE id OPERATOR(pg_catalog.=) 11) AND NOT EXISTS (SELECT FROM public.p_ci_builds)
	AND EXISTS (SELECT FROM public.merge_request_diffs WHERE id OPERATOR(pg_catalog.=) 11 AND stored_externally)`

// trapSite returns a site in which another role has created traps, and a URL that
// connects as the given role.
func trapSite(t *testing.T, as string) (s clitest.RoleSite, url string) {
	s = clitest.NewRoleSite(t)
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+
		"p_ci_builds: [{table: projects, column: project_id, on_delete: async_delete}]\n")
	s.OK("triggers", "install")
	s.Exec("GRANT SELECT, UPDATE, DELETE ON p_ci_builds TO " + pgx.Identifier{s.Worker}.Sanitize())
	s.Exec("INSERT INTO organizations (id, name, path) VALUES (1, 'one', 'one') ON CONFLICT DO NOTHING")
	other := s.CreateRole()
	s.Exec("CREATE SEQUENCE ran; GRANT ALL ON SEQUENCE ran TO PUBLIC; GRANT CREATE ON SCHEMA public TO " +
		pgx.Identifier{other}.Sanitize())
	s.ExecAs(t, other, "SET search_path = pg_catalog", "SELECT set_config('traps.types', '"+trapTypes()+"', false)",
		"SELECT set_config('traps.names', '"+strings.Join(calledFunctions(t), ",")+"', false)", trapsSQL)
	require.Greater(t, pgtest.Scalar[int64](t, s.Database,
		"SELECT pg_catalog.count(*) FROM pg_catalog.pg_proc WHERE pronamespace = 'public'::regnamespace"), int64(1000))

	// This prepared transaction makes Postgres evaluate the conditions on
	// pg_prepared_xacts. Runs read this view, because a prepared transaction may insert
	// children of deleted parents.
	s.Exec("BEGIN; UPDATE issues SET title = 'changed' WHERE id = 3; PREPARE TRANSACTION '" + other + "'")
	t.Cleanup(func() { rollbackPrepared(t, s) })

	// Batches use the search_path of the application. In this path, the functions of
	// schema public come before the functions of Postgres.
	s.Environ = append(s.Environ, "SEXTON_DATABASES__MAIN__SEARCH_PATH=public, pg_catalog",
		"SEXTON_HTTP__LISTEN=127.0.0.1:0")
	if as == "worker" {
		return s, s.AsRole(s.Worker)
	}
	return s, s.URL
}

// rollbackPrepared ends the transaction that trapSite has prepared, if it still exists.
func rollbackPrepared(t *testing.T, s clitest.RoleSite) {
	s.Exec(pgtest.Scalar[string](t, s.Database,
		"SELECT coalesce((SELECT pg_catalog.format('ROLLBACK PREPARED %L', gid) FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()), 'SELECT')"))
}

// runWorker starts a worker while a table and a row are locked, unlocks them, waits for
// the pending work, requests the HTTP pages and stops the worker.
func runWorker(t *testing.T, s clitest.RoleSite, url string) {
	locking := pgtest.Connect(t, s.URL+"&search_path=pg_catalog")
	s.Exec(fmt.Sprintf(pendingWork, 1))
	pgtest.Exec(t, locking,
		"BEGIN; LOCK TABLE public.p_ci_builds IN ACCESS EXCLUSIVE MODE; SELECT FROM public.issues WHERE id = 11 FOR UPDATE")

	logged, stop := startWorker(t, s.Site, url)

	pgtest.Await(t, s.Database, "the worker to wait for the locks", `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS lock JOIN pg_catalog.pg_database AS own ON own.oid = lock.database
		WHERE own.datname = current_database() AND NOT lock.granted)`)
	pgtest.WaitFor(t, "status to report the lock", func(context.Context) (bool, error) {
		status := s.Run("status", "--database-url", url)
		return regexp.MustCompile(`lock.*\bpid \d+`).MatchString(status.Stdout), nil
	})
	pgtest.Exec(t, locking, "ROLLBACK")
	pgtest.Await(t, s.Database, "the worker to do the work of all kinds", workDone)
	address := regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(logged())
	for _, path := range []string{"/", "/metrics", "/readyz", "/river/api/jobs?state=completed"} {
		request := pgtest.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil))(t)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, errors.Join(err, response.Body.Close()))
		require.Equal(t, http.StatusOK, response.StatusCode, "%s: %s", path, body)
	}
	stop()
	require.NotContains(t, logged(), "trap ran:")
}

// startWorker starts the program as a worker. It returns a function that reads the log,
// and a function that stops the worker.
func startWorker(t *testing.T, s *clitest.Site, url string) (logged func() string, stop func()) {
	t.Helper()
	command := exec.CommandContext(t.Context(), pgtest.Must(os.Executable())(t), "run", "--database-url", url)
	command.Env = append(slices.Clone(s.Environ), clitest.AsProgram)
	log := pgtest.Must(os.Create(s.Path("worker.log")))(t)
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	logged = func() string {
		return string(pgtest.Must(os.ReadFile(log.Name()))(t))
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = log.Close()
		if t.Failed() {
			t.Log(logged())
		}
	})
	return logged, func() {
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		require.NoError(t, command.Wait())
	}
}

// untestedCommands maps the commands that TestNoCodeOfOtherRolesRuns does not run to the
// reasons.
var untestedCommands = map[string]string{
	"run":        "pendingWork is its work",
	"demo":       "it creates its own server, and its worker is the same as elsewhere",
	"bench":      "it creates its own databases",
	"config":     "it reads files",
	"completion": "it prints a script",
	"help":       "it prints a text",
	"version":    "it prints a text",
}

// commandPaths returns the paths of all commands without subcommands, as shell completion
// lists them.
func commandPaths(path ...string) (found []string) {
	below := 0
	for line := range strings.Lines(clitest.Run(nil, append(append([]string{"__complete"}, path...), "")...).Stdout) {
		if name, _, is := strings.Cut(line, "\t"); is {
			below++
			found = append(found, commandPaths(append(slices.Clone(path), name)...)...)
		}
	}
	if below == 0 && len(path) > 0 {
		found = append(found, strings.Join(path, " "))
	}
	return found
}

// everyCommand returns command lines of all commands except untestedCommands. kept is the
// ID of a deletion that can be undone. The worker's role lacks privileges for some
// commands from `job enqueue` on.
func everyCommand(kept string) [][]string {
	return [][]string{
		{"status"},
		{"plan"},
		{"doctor"},
		{"job", "run", clitest.MoveKind, "--args", `{"diff_id": 12}`},
		{"diffs", "show", "12"},
		{"job", "run", "import_delete_placeholder_user", "--args", `{"user_id": 22}`},
		{"job", "list"},
		{"migrate", "status"},
		{"grants", "--worker", "sexton_owner"},
		{"triggers", "status"},
		{"failures", "list"},
		{"group", "list"},
		{"audit"},
		{"pause", clitest.Kind},
		{"resume", clitest.Kind},
		{"job", "run", clitest.Kind},
		{"job", "run", "users_migrate_records_to_ghost_user_in_batches"},
		{"job", "run", "import_placeholder_user_cleanup"},
		{"job", "run", "adjourned_group_deletion"},
		{"job", "run", "group_destroy", "--args", `{"group_id": 12, "user_id": 2}`},
		{"job", "run", "schedule_migrate_external_diffs"},
		{"undo", "list"},
		{"undo", "show", kept},
		{"definitions", "foreign-keys"},
		{"job", "enqueue", clitest.Kind},
		{"undo", kept, "--dry-run"},
		{"undo", kept},
		{"undo", "forget", kept},
		{"failures", "retry", "diffs", "--all"},
		{"user", "delete", "--plan", "2"},
		{"user", "delete", "2", "--by", "2"},
		{"user", "cancel", "2"},
		{"group", "schedule", "22", "--by", "2"},
		{"group", "cancel", "22", "--by", "2"},
		{"group", "delete", "22", "--plan"},
		{"diffs", "verify"},
		{"diffs", "restore", "12"},
		{"diffs", "release", "12"},
		{"diffs", "adopt"},
		{"group", "delete", "22", "--now", "--by", "2"},
		{"user", "delete", "--hard", "--delete-groups", "1", "--by", "2"},
		{"failures", "retry", "groups", "--all"},
		{"failures", "retry", "placeholders", "--all"},
		{"failures", "retry", "tombstones", "--all"},
		{"audit", "--repair"},
		{"migrate", "up"},
		{"triggers", "install"},
		{"triggers", "uninstall"},
		{"migrate", "down", "--force"},
		{"init"},
	}
}

// If another role may create objects in a schema of the search_path, its code does not
// run with the privileges of the worker or the operator.
func TestNoCodeOfOtherRolesRuns(t *testing.T) {
	t.Parallel()
	roles := []string{"superuser"}
	if pgtest.Long {
		roles = append(roles, "worker")
	}
	for _, as := range roles {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			s, url := trapSite(t, as)
			requireNoTraps(t, s, url, as)
		})
	}
}

// requireNoTraps runs a worker and all commands, and requires that no trap has run.
func requireNoTraps(t *testing.T, s clitest.RoleSite, url, as string) {
	runWorker(t, s, url)
	s.Exec(fmt.Sprintf(pendingWork, 2))
	s.Exec(`INSERT INTO sexton.leases VALUES ('held', 1, 'gone', now(), now() + interval '1 hour');
		INSERT INTO loose_foreign_keys_deleted_records (id, primary_key_value, fully_qualified_table_name, status, consume_after)
		OVERRIDING SYSTEM VALUE VALUES (4711, 3, 'public.projects', 3, 'infinity')`)
	kept := pgtest.Scalar[string](t, s.Database, "SELECT min(id)::text FROM sexton.undo")
	operators, tried := false, map[string]bool{}
	for _, command := range everyCommand(kept) {
		for n := range command {
			tried[strings.Join(command[:n+1], " ")] = true
		}
		operators = operators || command[0] == "job" && command[1] == "enqueue"
		if operators && !pgtest.Long {
			continue
		}
		if command[0] == "triggers" && command[1] == "uninstall" {
			// The command drops triggers, which waits for the transactions that have
			// changed the tables.
			rollbackPrepared(t, s)
		}
		if command[0] == "init" {
			// The command init writes this file and refuses to overwrite it.
			require.NoError(t, os.Remove(s.Path("loose_foreign_keys.yml")))
		}
		r := s.Run(append(command, "--database-url", url)...)
		if r.Code != 0 && command[0] != "doctor" && (as == "superuser" || !operators) ||
			strings.Contains(r.Stdout+r.Stderr, "trap ran:") {
			t.Errorf("%v: exit %d\n%s\n%s", command, r.Code, r.Stdout, r.Stderr)
		}
	}
	all := commandPaths()
	require.Greater(t, len(all), 40)
	for _, path := range all {
		require.True(t, tried[path] || untestedCommands[path] != "" || untestedCommands[strings.Fields(path)[0]] != "", "everyCommand lacks %s",
			path)
	}
	require.Equal(t, "false", pgtest.Scalar[string](t, s.Database, "SELECT is_called::pg_catalog.text FROM public.ran"),
		"a trap has run")
}
