package clitest

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// RoleSite is the reference application with all jobs. Its three roles have the
// privileges that `sexton grants` prints.
type RoleSite struct {
	*Site

	Application, Worker, Viewer string
}

const rolesRows = `
		INSERT INTO users (id, username, email, name) VALUES
			(1, 'ada', 'ada@example.com', 'Ada'), (2, 'ben', 'ben@example.com', 'Ben');
		UPDATE users SET admin = true WHERE id = 2;
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (7);
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'one', 'one'), (2, 1, 'two', 'two');
		ALTER TABLE issues DROP CONSTRAINT IF EXISTS issues_project_id_fkey;
		INSERT INTO issues (id, project_id, title, author_id) VALUES (1, 1, 'by Ada', 1), (2, 2, 'by Ada', 1), (3, 2, 'by Ben', 2);`

func roleSite(tb testing.TB, db *pgtest.Database) RoleSite {
	s := RoleSite{Site: NewSite(tb, db)}
	s.Configure(s.URL, EveryComponent)
	s.Environ = append(s.Environ, "SEXTON_EXTERNAL_DIFFS__BUCKET=file://"+tb.TempDir())
	return s
}

// NewRoleSite returns a RoleSite on a copy of a template, with new roles.
func NewRoleSite(t *testing.T) RoleSite {
	s := roleSite(t, pgtest.FromTemplate(t, "roles", func(ctx context.Context, url string) error {
		if err := execute(ctx, url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC;"+exampleapp.Schema()+
			rolesRows); err != nil {
			return err
		}
		return roleSite(t, &pgtest.Database{URL: url}).install()
	}))
	s.Application, s.Worker, s.Viewer = s.CreateRole(), s.CreateRole(), s.CreateRole()
	grants := []string{"grants", "--app", s.Application, "--worker", s.Worker, "--viewer", s.Viewer}
	s.OK(append(grants, "--apply")...)
	require.Equal(t, "-- no privileges are missing\n", s.OK(grants...))
	quote := func(role string) string { return pgx.Identifier{role}.Sanitize() }
	s.Exec("GRANT USAGE ON SCHEMA public TO " + quote(s.Application) + "; GRANT SELECT, DELETE ON projects TO " +
		quote(s.Application))
	return s
}

// ExecAs runs statements as a role, each in its own transaction. It returns the rows of
// the last statement.
func (s RoleSite) ExecAs(t *testing.T, role string, statements ...string) [][]string {
	conn := pgtest.Connect(t, s.AsRole(role)+"&search_path=public")
	var result [][]string
	for _, statement := range statements {
		rows, err := conn.Query(t.Context(), statement)
		require.NoError(t, err, statement)
		result, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
			values, err := row.Values()
			texts := make([]string, len(values))
			for i, value := range values {
				texts[i] = fmt.Sprint(value)
			}
			return texts, err
		})
		require.NoError(t, err, statement)
	}
	return result
}

// RequireForbidden requires that each statement fails with insufficient_privilege (42501)
// if the role runs it.
func (s RoleSite) RequireForbidden(t *testing.T, role string, statements ...string) {
	conn := pgtest.Connect(t, s.AsRole(role)+"&search_path=public")
	for _, statement := range statements {
		_, err := conn.Exec(t.Context(), statement)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr, statement)
		require.Equal(t, "42501", pgErr.Code, statement)
	}
}

// EveryComponent is a configuration that enables all jobs except retention.
const EveryComponent = "ghost_users: {enabled: true}\nplaceholder_users: {enabled: true}\nadjourned_groups: {enabled: true}\n" +
	"external_diffs: {enabled: true, bucket: \"file:///nowhere/diffs\"}\nloose_foreign_keys: {undo: {keep: 24h}}\n"
