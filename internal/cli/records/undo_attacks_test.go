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

// attacked is a site with a kept deletion of three projects and a snapshot from before
// the deletion.
type attacked struct {
	*clitest.Site

	id   string
	rows [][]string
}

const allRows = "SELECT p::text FROM projects AS p UNION ALL SELECT i::text FROM issues AS i ORDER BY 1"

func attack(t *testing.T) attacked {
	s := attacked{Site: clitest.Plain(t)}
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h")
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	s.rows = s.Rows(allRows)
	s.Exec("DELETE FROM projects WHERE id <= 3")
	s.id = pgtest.Scalar[string](t, s.Database, "SELECT id::text FROM sexton.undo")
	return s
}

// back requires that the deletion is restored completely, and only once.
func (s attacked) back(t *testing.T, said string) {
	t.Helper()
	require.Contains(t, s.OK("undo", s.id), said)
	require.Equal(t, s.rows, s.Rows(allRows))
	require.Contains(t, s.OK("undo", s.id), "0 rows restored")
	s.OK("job", "run", clitest.Kind)
	require.Equal(t, s.rows, s.Rows(allRows))
}

// during locks the issues so that a command waits, calls do, unlocks them, and returns
// the result of the command.
func (s attacked) during(t *testing.T, do func(), command ...string) clitest.Result {
	t.Helper()
	held := pgtest.Begin(t, s.Pool(), "LOCK TABLE issues IN SHARE MODE")
	wait := dbtest.InBackground(func() (clitest.Result, error) { return s.Run(command...), nil })
	(&dbtest.DB{Database: s.Database}).AwaitLock(t)
	do()
	require.NoError(t, held.Rollback(t.Context()))
	return pgtest.Must(wait())(t)
}

func TestUndoOfWhatIsNoDeletion(t *testing.T) {
	t.Parallel()
	s := attack(t)
	s.OK("job", "run", clitest.Kind)
	batch := pgtest.Scalar[string](t, s.Database, "SELECT min(id)::text FROM sexton.undo WHERE origins IS NOT NULL")
	for _, command := range [][]string{{"undo"}, {"undo", "show"}, {"undo", "forget"}} {
		needs := "sexton " + strings.Join(command, " ") + " needs the ID of one deletion"
		s.Refused(t, 2, [][]string{command, append(command, s.id, s.id)}, needs)
		for _, id := range []string{"0", "abc", "4.5", "99999999999999999999", s.id + "x", ""} {
			s.Refused(t, 2, [][]string{append(command, id)}, `"`+id+`" is not the ID of a deletion`)
		}
		for _, id := range []string{"7", batch} {
			s.Says(1, "deletion "+id+": no deletion with this number is kept", append(command, id)...)
		}
	}
	s.back(t, "33 rows restored")
	s.OK("undo", "forget", s.id)
	for _, command := range [][]string{{"undo"}, {"undo", "show"}, {"undo", "forget"}} {
		s.Says(1, "no deletion with this number is kept", append(command, s.id)...)
	}
}

// A definition whose table is missing does not affect the undo of other deletions.
func TestUndoBesideADefinitionWithoutItsTable(t *testing.T) {
	t.Parallel()
	s := attack(t)
	s.OK("job", "run", clitest.Kind)
	s.Exec("CREATE TABLE gone (id bigint PRIMARY KEY, project_id bigint); CREATE INDEX ON gone (project_id)")
	s.Write("loose_foreign_keys.yml", string(pgtest.Must(os.ReadFile(s.Path("loose_foreign_keys.yml")))(t))+
		"gone: [{table: projects, column: project_id, on_delete: async_delete}]\n")
	s.OK("triggers", "install")
	s.Exec("DROP TABLE gone")
	s.Says(2, "gone", "job", "run", clitest.Kind)
	require.Contains(t, s.OK("undo", s.id), "33 rows restored")
	require.Equal(t, s.rows, s.Rows(allRows))
}

// While one command is running, another is refused, and a worker waits. The command can
// be repeated after its session was killed.
func TestUndoAmongOthers(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range pgtest.Few(t, map[string]func(t *testing.T, s attacked){
		"a second one": func(t *testing.T, s attacked) {
			for _, command := range [][]string{{"undo", s.id}, {"undo", s.id, "--dry-run"}, {"undo", "forget", s.id}} {
				s.Says(1, "another process is undoing or forgetting a deletion; try again when it or its lease has ended",
					command...)
			}
			require.Contains(t, s.OK("undo", "show", s.id), "public.projects")
		},
		"a worker": func(t *testing.T, s attacked) {
			s.Exec("DELETE FROM projects WHERE id = 4; INSERT INTO projects VALUES (4, 'project 4')")
			require.Contains(t, s.OK("job", "run", clitest.Kind), "skipped")
		},
		"a killed session": func(_ *testing.T, s attacked) {
			s.Terminate("wait_event_type = 'Lock'")
		},
	}, "a second one") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := attack(t)
			s.OK("job", "run", clitest.Kind)
			r := s.during(t, func() { meanwhile(t, s) }, "undo", s.id)
			require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
			require.Contains(t, r.Stdout, "33 rows restored")
			s.back(t, "0 rows restored")
		})
	}
}

// The partition of a deletion is not dropped while the deletion is being restored.
func TestTheDayOfADeletionEndsDuringItsUndo(t *testing.T) {
	t.Parallel()
	s := attack(t)
	s.OK("job", "run", clitest.Kind)
	s.Exec("CREATE TABLE sexton.undo_20260101 PARTITION OF sexton.undo FOR VALUES FROM ('2026-01-01') TO ('2026-01-02'); UPDATE sexton.undo SET kept_at = '2026-01-01 12:00'")
	require.Contains(t, s.OK("undo", "list"), s.id)
	days := "SELECT count(*)::text FROM pg_class WHERE relname = 'undo_20260101'"
	r := s.during(t, func() {
		s.OK("job", "run", clitest.Kind)
		require.Equal(t, [][]string{{"1"}}, s.Rows(days), "no worker ends a day while an undo works")
		s.Exec("SELECT sexton.undo_rotate('undo', '72 hours', true)")
		require.Equal(t, [][]string{{"1"}}, s.Rows(days), "its rows are locked")
	}, "undo", s.id)
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, "33 rows restored")
	require.Equal(t, s.rows, s.Rows(allRows))
	s.Exec("SELECT sexton.undo_rotate('undo', '72 hours', true)")
	s.Says(1, "no deletion with this number is kept", "undo", s.id)
}

// Rows that native keys delete and change below a child are restored with the printed
// grants. Without them, doctor names each.
func TestUndoWithoutRightsOnNativeKeys(t *testing.T) {
	t.Parallel()
	s := attacked{Site: clitest.Plain(t)}
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
	was := s.Rows(rows)
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
	require.Equal(t, was, s.Rows(rows))
}

// A hanging worker loses its lease, and an unfinished deletion is stopped.
func TestUndoOfARunningDeletion(t *testing.T) {
	t.Parallel()
	s := attack(t)
	require.Contains(t, s.OK("undo", "list"), "complete, still running")
	s.HoldLease()
	s.back(t, "3 rows restored")
}

func TestUndoWithoutRightsOrDatabase(t *testing.T) {
	t.Parallel()
	s := attack(t)
	s.OK("job", "run", clitest.Kind)
	role := s.CreateRole()
	nowhere := s.With(func(u *url.URL) {
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
		s.Refused(t, 7, [][]string{append(command, "--database-url", s.AsRole(role))}, "`sexton grants` prints")
		s.Refused(t, 4, [][]string{append(command, "--database-url", nowhere)}, "database main cannot be reached")
	}
	printed := s.OK("grants", "--worker", role, "--app", role, "--viewer", role)
	s.Exec(printed)
	s.Says(1, "the role may not silence triggers; ", "undo", s.id, "--dry-run", "--database-url", s.AsRole(role))
	// Without INSERT, the rows are left and each names the privilege. doctor names it
	// before.
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
	s.back(t, "0 rows restored")
}
