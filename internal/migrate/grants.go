package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	sqlfiles "sexton/sql"
)

// Roles holds the names of the database roles. A name is empty if there is no such role.
type Roles struct {
	// Application is the role that deletes its own rows and calls functions such as
	// enqueue.
	Application string
	// Worker is the role of `sexton run`.
	Worker string
	// Viewer is a role that only reads state and history.
	Viewer string
}

// Grants returns SQL that grants the minimum privileges to an application, a worker and a
// viewer role, with psql's variables application, worker and viewer for their names. The
// application needs privileges only in the jobs database.
func Grants(db Database) string {
	var sections []string
	for _, c := range db.components() {
		text, _ := sqlfiles.Grants.ReadFile("grants/" + c.name + ".sql")
		sections = append(sections, db.replacer(snapshot{}, c.name).Replace(string(text)))
	}
	return strings.Join(sections, "\n")
}

// These constants are the values of TableGrant.Referring.
const (
	// Directly means the tables with a foreign key to the table. Anyhow means the tables
	// with a direct or indirect foreign key to the table.
	Directly = "direct"
	Anyhow   = "all"
	// Restored means the tables whose rows native keys delete or change, over any number
	// of keys. The granted privileges are the privileges that undo needs, and depend on
	// the keys.
	Restored = "undo"
	// Spared marks a table at which the search of Restored stops.
	Spared = "spared"
	// Cascading means the tables whose rows native keys delete, over any number of keys.
	// On tables whose rows a key only changes or protects, only the privileges for that
	// action are granted.
	Cascading = "cascade"
)

// TableGrant describes the privileges that the worker needs on a table of the
// application.
type TableGrant struct {
	// Table is the qualified name in SQL.
	Table string `json:"name"`
	// Privileges is the list in a GRANT, such as "SELECT, UPDATE".
	Privileges string `json:"privileges"`
	// Referring, if set, is one of the constants above. The privileges are then for
	// tables that refer to this table, instead of this table.
	Referring string `json:"referring"`
}

// granted is one privilege on one object in the SQL of Grants.
type granted struct {
	Role      string   `json:"role"`
	Kind      string   `json:"kind"`
	Schema    string   `json:"schema"`
	Name      string   `json:"name"`
	Privilege string   `json:"privilege"`
	Columns   []string `json:"columns,omitempty"`
}

var (
	comment    = regexp.MustCompile(`(?m)^--.*$`)
	grant      = regexp.MustCompile(`GRANT ([^;]+?)\s+ON (TABLE|SCHEMA|SEQUENCE|FUNCTION)\s+([^;]+?)\s+TO ([^;]+);`)
	privilege  = regexp.MustCompile(`([A-Z]+)(?: \(((?:"(?:[^"]|"")+"|\w+|, )+)\))?`)
	identifier = regexp.MustCompile(`"(?:[^"]|"")+"|\w+`)
	object     = regexp.MustCompile(`("(?:[^"]|"")+")(?:\.("(?:[^"]|"")+"|\w+))?(?:\([^)]*\))?`)
)

// privileges returns the privileges of Grants. It parses the statements of Grants, so
// that there is only one list of privileges.
func (db Database) privileges(roles Roles) (privileges []granted) {
	unquote := func(name string) string {
		return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(name, `"`), `"`), `""`, `"`)
	}
	for _, found := range grant.FindAllStringSubmatch(comment.ReplaceAllString(Grants(db), ""), -1) {
		for variable, role := range map[string]string{
			`:"application"`: roles.Application, `:"worker"`: roles.Worker,
			`:"viewer"`: roles.Viewer,
		} {
			if role == "" || !strings.Contains(found[4], variable) {
				continue
			}
			for _, name := range object.FindAllStringSubmatch(found[3], -1) {
				for _, one := range privilege.FindAllStringSubmatch(found[1], -1) {
					r := granted{
						Role: role, Kind: found[2], Schema: unquote(name[1]), Name: unquote(name[2]),
						Privilege: one[1],
					}
					for _, column := range identifier.FindAllString(one[2], -1) {
						r.Columns = append(r.Columns, unquote(column))
					}
					privileges = append(privileges, r)
				}
			}
		}
	}
	if roles.Worker != "" {
		// A subscription reads pg_locks to wait for writers before it stops being awake.
		// By default every role may read pg_locks, but that can be revoked.
		privileges = append(privileges, granted{
			Role: roles.Worker, Kind: "TABLE", Schema: "pg_catalog", Name: "pg_locks",
			Privilege: "SELECT",
		})
	}
	return privileges
}

// Lack describes a missing privilege of a role.
type Lack struct {
	// Runner is the role that can run the GRANT: the current role, or else the owner of
	// the object. If it is empty, only a superuser can.
	Runner string
	// Optional marks a privilege that the work does not depend on.
	Optional bool
	// Kind and Object name the object, such as table and public.issues. Role is quoted
	// for SQL.
	Kind, Object, Privileges, Role string
	// Statement grants the privilege.
	Statement string
}

// Lacks returns the missing privileges of roles in the database. tables are the
// application's tables that the worker uses. Lacks also checks their partitions and the
// default privileges for future partitions.
func (db Database) Lacks(ctx context.Context, on querier, roles Roles, tables []TableGrant) ([]Lack, error) {
	privileges, err := json.Marshal(append([]granted{}, db.privileges(roles)...))
	if err != nil {
		return nil, fmt.Errorf("encode privileges: %w", err)
	}
	listed, err := json.Marshal(append([]TableGrant{}, tables...))
	if err != nil {
		return nil, fmt.Errorf("encode tables: %w", err)
	}
	return list(ctx, on, "privileges of roles", pgx.RowToStructByPos[Lack], sqlText("lacks"), string(privileges),
		string(listed), roles.Worker)
}

// Grant grants the missing privileges that the current role may grant, and returns the
// privileges that it may not grant. If apply is false, it grants none and returns all
// missing privileges.
func (db Database) Grant(ctx context.Context, log *slog.Logger, roles Roles, tables []TableGrant,
	apply bool,
) (lacks []Lack, done int, err error) {
	readLacks := func(tx pgx.Tx) (role string, err error) {
		if _, err := tx.Exec(ctx, pgcatalog.Pinned()); err != nil {
			return "", err
		}
		var missing []string
		err = tx.QueryRow(ctx, sqlText("missing_roles"),
			[]string{roles.Application, roles.Worker, roles.Viewer}).Scan(&role, &missing)
		if err == nil && len(missing) > 0 {
			err = problem.List{{
				Key: "role " + missing[0], Message: "the role does not exist in database " + db.Name,
				Fix: "CREATE ROLE " + missing[0] + " LOGIN",
			}}
		}
		if err == nil {
			lacks, err = db.Lacks(ctx, tx, roles, tables)
		}
		return role, err
	}
	if !apply {
		err = db.reading(ctx, func(on beginner) error {
			return pgx.BeginTxFunc(ctx, on, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
				_, err := readLacks(tx)
				return err
			})
		})
		return lacks, 0, problem.Doing(err, "read privileges in database %s", db.Name)
	}
	err = withSession(ctx, log, db, func(s *session) error {
		return s.change(ctx, func(tx pgx.Tx) error {
			role, err := readLacks(tx)
			done = 0
			for _, lack := range lacks {
				if err != nil || lack.Runner != role {
					continue
				}
				done++
				_, err = tx.Exec(ctx, lack.Statement)
				err = problem.Doing(err, "run %q", lack.Statement)
			}
			if err == nil {
				// Postgres returns a warning, not an error, if the role has privileges on
				// an object but no grant option.
				_, err = readLacks(tx)
			}
			return err
		})
	})
	if errors.Is(err, context.Canceled) {
		return nil, 0, err
	}
	return lacks, done, problem.Doing(err, "grant in database %s", db.Name)
}
