package records_test

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// keptDeletion is a site after a deletion of three projects whose rows undo has saved.
// rows is the content of the tables before the deletion.
type keptDeletion struct {
	*clitest.Site

	id   string
	rows [][]string
}

const allRows = "SELECT p::text FROM projects AS p UNION ALL SELECT i::text FROM issues AS i ORDER BY 1"

func deleteProjects(t *testing.T) keptDeletion {
	s := keptDeletion{Site: clitest.Plain(t)}
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h")
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	s.rows = s.Rows(allRows)
	s.Exec("DELETE FROM projects WHERE id <= 3")
	s.id = pgtest.Scalar[string](t, s.Database, "SELECT id::text FROM sexton.undo")
	return s
}

// requireRestored runs undo with the wanted output. It requires that all rows are as
// before the deletion, and that neither another undo nor a run changes them.
func (s keptDeletion) requireRestored(t *testing.T, want string) {
	t.Helper()
	require.Contains(t, s.OK("undo", s.id), want)
	require.Equal(t, s.rows, s.Rows(allRows))
	require.Contains(t, s.OK("undo", s.id), "0 rows restored")
	s.OK("job", "run", clitest.Kind)
	require.Equal(t, s.rows, s.Rows(allRows))
}

// runBlocked starts a command, which waits because issues is locked. It calls do,
// releases the lock, and returns the result of the command.
func (s keptDeletion) runBlocked(t *testing.T, do func(), command ...string) clitest.Result {
	t.Helper()
	lock := pgtest.Begin(t, s.Pool(), "LOCK TABLE issues IN SHARE MODE")
	wait := dbtest.InBackground(func() (clitest.Result, error) { return s.Run(command...), nil })
	(&dbtest.DB{Database: s.Database}).AwaitLock(t)
	do()
	require.NoError(t, lock.Rollback(t.Context()))
	return pgtest.Must(wait())(t)
}

func TestUndoWithWrongIDs(t *testing.T) {
	t.Parallel()
	s := deleteProjects(t)
	s.OK("job", "run", clitest.Kind)
	batch := pgtest.Scalar[string](t, s.Database, "SELECT min(id)::text FROM sexton.undo WHERE origins IS NOT NULL")
	for _, command := range [][]string{{"undo"}, {"undo", "show"}, {"undo", "forget"}} {
		needs := "sexton " + strings.Join(command, " ") + " needs the ID of one deletion"
		s.RequireRefused(t, 2, [][]string{command, append(command, s.id, s.id)}, needs)
		for _, id := range []string{"0", "abc", "4.5", "99999999999999999999", s.id + "x", ""} {
			s.RequireRefused(t, 2, [][]string{append(command, id)}, `"`+id+`" is not the ID of a deletion`)
		}
		for _, id := range []string{"7", batch} {
			s.RequireError(1, "deletion "+id+": no deletion with this number is kept", append(command, id)...)
		}
	}
	s.requireRestored(t, "33 rows restored")
	s.OK("undo", "forget", s.id)
	for _, command := range [][]string{{"undo"}, {"undo", "show"}, {"undo", "forget"}} {
		s.RequireError(1, "no deletion with this number is kept", append(command, s.id)...)
	}
}

// If the table of another definition is missing, undo still restores the deletion.
func TestUndoWithAnInvalidDefinition(t *testing.T) {
	t.Parallel()
	s := deleteProjects(t)
	s.OK("job", "run", clitest.Kind)
	s.Exec("CREATE TABLE gone (id bigint PRIMARY KEY, project_id bigint); CREATE INDEX ON gone (project_id)")
	s.Write("loose_foreign_keys.yml", string(pgtest.Must(os.ReadFile(s.Path("loose_foreign_keys.yml")))(t))+
		"gone: [{table: projects, column: project_id, on_delete: async_delete}]\n")
	s.OK("triggers", "install")
	s.Exec("DROP TABLE gone")
	s.RequireError(2, "gone", "job", "run", clitest.Kind)
	require.Contains(t, s.OK("undo", s.id), "33 rows restored")
	require.Equal(t, s.rows, s.Rows(allRows))
}

// While an undo is running, another undo is refused, and a run is skipped. If the session
// of an undo is terminated, the command continues with a new session.
func TestConcurrentUndo(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range pgtest.Few(t, map[string]func(t *testing.T, s keptDeletion){
		"a second undo": func(t *testing.T, s keptDeletion) {
			for _, command := range [][]string{{"undo", s.id}, {"undo", s.id, "--dry-run"}, {"undo", "forget", s.id}} {
				s.RequireError(1, "another process is undoing or forgetting a deletion; try again when it or its lease has ended",
					command...)
			}
			require.Contains(t, s.OK("undo", "show", s.id), "public.projects")
		},
		"a worker": func(t *testing.T, s keptDeletion) {
			s.Exec("DELETE FROM projects WHERE id = 4; INSERT INTO projects VALUES (4, 'project 4')")
			require.Contains(t, s.OK("job", "run", clitest.Kind), "skipped")
		},
		"a killed session": func(_ *testing.T, s keptDeletion) {
			s.Terminate("wait_event_type = 'Lock'")
		},
	}, "a second undo") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := deleteProjects(t)
			s.OK("job", "run", clitest.Kind)
			r := s.runBlocked(t, func() { meanwhile(t, s) }, "undo", s.id)
			require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
			require.Contains(t, r.Stdout, "33 rows restored")
			s.requireRestored(t, "0 rows restored")
		})
	}
}

// The partition with the saved rows of a deletion is not dropped while the deletion is
// being restored.
func TestUndoWhileTheDeletionExpires(t *testing.T) {
	t.Parallel()
	s := deleteProjects(t)
	s.OK("job", "run", clitest.Kind)
	s.Exec("CREATE TABLE sexton.undo_20260101 PARTITION OF sexton.undo FOR VALUES FROM ('2026-01-01') TO ('2026-01-02'); UPDATE sexton.undo SET kept_at = '2026-01-01 12:00'")
	require.Contains(t, s.OK("undo", "list"), s.id)
	days := "SELECT count(*)::text FROM pg_class WHERE relname = 'undo_20260101'"
	r := s.runBlocked(t, func() {
		s.OK("job", "run", clitest.Kind)
		require.Equal(t, [][]string{{"1"}}, s.Rows(days), "a worker drops no partition while an undo is running")
		s.Exec("SELECT sexton.undo_rotate('undo', '72 hours', true)")
		require.Equal(t, [][]string{{"1"}}, s.Rows(days), "the partition is not dropped while its rows are locked")
	}, "undo", s.id)
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "33 rows restored")
	require.Equal(t, s.rows, s.Rows(allRows))
	s.Exec("SELECT sexton.undo_rotate('undo', '72 hours', true)")
	s.RequireError(1, "no deletion with this number is kept", "undo", s.id)
}

// With the printed grants, undo restores rows that native foreign keys below a child
// deleted or changed. If privileges on these tables are missing, doctor reports each.
func TestUndoWithoutPrivilegesBelowNativeKeys(t *testing.T) {
	t.Parallel()
	s := keptDeletion{Site: clitest.Plain(t)}
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h")
	s.Exec(`
		CREATE TABLE users (id bigint PRIMARY KEY, issue_id bigint REFERENCES issues ON DELETE CASCADE);
		CREATE TABLE badges (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
		CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint REFERENCES issues ON DELETE CASCADE);
		CREATE TABLE lines (id bigint, note_id bigint REFERENCES notes ON DELETE CASCADE, PRIMARY KEY (id)) PARTITION BY LIST (id);
		CREATE TABLE lines_1 PARTITION OF lines DEFAULT;
		CREATE TABLE tags (id bigint PRIMARY KEY, line_id bigint REFERENCES lines ON DELETE SET NULL);
		INSERT INTO notes SELECT id, id FROM generate_series(1, 100) AS id;
		INSERT INTO lines SELECT id, id FROM generate_series(1, 100) AS id;
		INSERT INTO tags SELECT id, id FROM generate_series(1, 100) AS id`)
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	role := s.CreateRole()
	printed := s.OK("grants", "--worker", role, "--app", role, "--viewer", role)
	require.NotContains(t, printed, "users TO")
	require.NotContains(t, printed, "badges TO")
	s.Exec(printed)
	const rows = "SELECT n::text FROM notes AS n UNION ALL SELECT l::text FROM lines AS l UNION ALL SELECT t::text FROM tags AS t ORDER BY 1"
	before := s.Rows(rows)
	const lacks = "sexton undo restores none of its rows: the role lacks "
	require.NotContains(t, s.Run("doctor", "--database-url", s.AsRole(role)).Stdout, lacks)
	quoted := pgx.Identifier{role}.Sanitize()
	s.Exec("REVOKE INSERT ON notes, lines, lines_1 FROM " + quoted + "; REVOKE UPDATE ON tags FROM " + quoted)
	doctor := s.Run("doctor", "--database-url", s.AsRole(role)).Stdout
	for table, privilege := range map[string]string{"notes": "INSERT", "lines": "INSERT", "tags": "UPDATE"} {
		require.Contains(t, doctor, "GRANT "+privilege+" ON TABLE public."+table+" TO")
	}
	s.Exec("DELETE FROM projects WHERE id <= 3")
	s.OK("job", "run", clitest.Kind, "--database-url", s.AsRole(role))
	s.id = pgtest.Scalar[string](t, s.Database, "SELECT min(id)::text FROM sexton.undo")
	s.Exec(s.OK("grants", "--worker", role))
	require.Contains(t, s.OK("undo", s.id, "--database-url", s.AsRole(role)), " rows restored")
	require.Equal(t, before, s.Rows(rows))
}

// undo takes the lease from a worker that does not respond, and restores a deletion whose
// cleanup has not finished.
func TestUndoOfARunningDeletion(t *testing.T) {
	t.Parallel()
	s := deleteProjects(t)
	require.Contains(t, s.OK("undo", "list"), "complete, still running")
	s.HoldLease()
	s.requireRestored(t, "3 rows restored")
}

func TestUndoWithoutPrivilegesOrDatabase(t *testing.T) {
	t.Parallel()
	s := deleteProjects(t)
	s.OK("job", "run", clitest.Kind)
	role := s.CreateRole()
	unreachable := s.ChangedURL(func(u *url.URL) {
		u.RawQuery = ""
		u.Host = "127.0.0.1:1"
	})
	for _, command := range [][]string{
		{"undo", "list"},
		{"undo", s.id},
		{"undo", s.id, "--dry-run"},
		{"undo", "show", s.id},
		{"undo", "forget", s.id},
	} {
		s.RequireRefused(t, 7, [][]string{append(command, "--database-url", s.AsRole(role))}, "`sexton grants` prints")
		s.RequireRefused(t, 4, [][]string{append(command, "--database-url", unreachable)}, "database main cannot be reached")
	}
	printed := s.OK("grants", "--worker", role, "--app", role, "--viewer", role)
	s.Exec(printed)
	s.RequireError(1, "the role may not disable triggers; ", "undo", s.id, "--dry-run", "--database-url", s.AsRole(role))
	// Without the INSERT privilege, undo leaves the rows and prints the missing
	// privilege. doctor reports it before the undo.
	s.Exec(fmt.Sprintf("REVOKE INSERT ON projects, issues FROM %s", pgx.Identifier{role}.Sanitize()))
	doctor := s.Run("doctor", "--database-url", s.AsRole(role)).Stdout
	require.Contains(t, doctor, "GRANT INSERT ON TABLE public.projects TO")
	require.Contains(t, doctor,
		"the role may not disable triggers: sexton undo fires the application's triggers, and --dry-run is refused")
	r := s.Run("undo", s.id, "--database-url", s.AsRole(role))
	require.Equal(t, 6, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "GRANT SELECT, INSERT, UPDATE ON TABLE public.projects")
	require.Contains(t, r.Stdout, "33 rows left")
	s.Exec(printed)
	require.Contains(t, s.OK("undo", s.id, "--database-url", s.AsRole(role)), "33 rows restored")
	s.requireRestored(t, "0 rows restored")
}
