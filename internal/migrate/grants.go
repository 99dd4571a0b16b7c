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

// Roles are the names of the roles that share the work. An empty name stands for none.
type Roles struct {
	// Application deletes its own rows and calls the functions that ask for work.
	Application string
	// Worker is for "sexton run".
	Worker string
	// Viewer reads state and history and changes nothing.
	Viewer string
}

// Grants returns the least privileges that an application, a worker and a viewer role
// need in the database, as SQL with psql's variables application, worker and viewer for
// their names. Only in the jobs database does the application need any.
func Grants(db Database) string {
	var sections []string
	for _, c := range db.components() {
		// The files are part of the program; a missing one shows in the tests.
		text, _ := sqlfiles.Grants.ReadFile("grants/" + c.name + ".sql")
		sections = append(sections, db.replacer(inspection{}, c.name).Replace(string(text)))
	}
	return strings.Join(sections, "\n")
}

// The tables that refer to one by a foreign key, for TableGrant.
const (
	// Directly is by a key of their own, Anyhow through others, too.
	Directly = "direct"
	Anyhow   = "all"
	// Restored is by native keys that delete or change rows, through any number of them.
	// The keys decide on the privileges: what undo needs.
	Restored = "undo"
	// Spared is a table at which Restored stops.
	Spared = "spared"
	// Cascading is as far as keys delete rows. On tables whose rows a key changes, or
	// which keep a row from being deleted, it grants no more than that needs.
	Cascading = "cascade"
)

// TableGrant is a right that the worker needs on a table of the application's.
type TableGrant struct {
	// Table is its name in SQL, with its schema.
	Table string `json:"name"`
	// Privileges are those of a GRANT, such as "SELECT, UPDATE".
	Privileges string `json:"privileges"`
	// Referring grants them on the tables that refer to this one instead, by one of the
	// constants above; empty: on this one.
	Referring string `json:"referring"`
}

// granted is one privilege on one object, such as Grants has them.
type granted struct {
	Role      string   `json:"role"`
	Kind      string   `json:"kind"`
	Schema    string   `json:"schema"`
	Name      string   `json:"name"`
	Privilege string   `json:"privilege"`
	Columns   []string `json:"columns,omitempty"`
}

var (
	remark     = regexp.MustCompile(`(?m)^--.*$`)
	grant      = regexp.MustCompile(`GRANT ([^;]+?)\s+ON (TABLE|SCHEMA|SEQUENCE|FUNCTION)\s+([^;]+?)\s+TO ([^;]+);`)
	privilege  = regexp.MustCompile(`([A-Z]+)(?: \(((?:"(?:[^"]|"")+"|\w+|, )+)\))?`)
	identifier = regexp.MustCompile(`"(?:[^"]|"")+"|\w+`)
	object     = regexp.MustCompile(`("(?:[^"]|"")+")(?:\.("(?:[^"]|"")+"|\w+))?(?:\([^)]*\))?`)
)

// rights reads the roles' rights out of the statements that grant them, so that there is
// one list of them.
func (db Database) rights(roles Roles) (rights []granted) {
	unquote := func(name string) string {
		return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(name, `"`), `"`), `""`, `"`)
	}
	for _, found := range grant.FindAllStringSubmatch(remark.ReplaceAllString(Grants(db), ""), -1) {
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
					rights = append(rights, r)
				}
			}
		}
	}
	if roles.Worker != "" {
		// Subscriptions go to sleep only once the writers that pg_locks shows have ended.
		// Everybody may read it, unless that was taken away.
		rights = append(rights, granted{
			Role: roles.Worker, Kind: "TABLE", Schema: "pg_catalog", Name: "pg_locks",
			Privilege: "SELECT",
		})
	}
	return rights
}

// Lack is a right that a role does not have.
type Lack struct {
	// Runner may grant it: the current role, or else the owner of the object, or "" for a
	// superuser.
	Runner string
	// Optional marks one without which the work is done, too.
	Optional bool
	// Kind and Object are what Privileges are for, such as table and public.issues; Role
	// is as SQL writes it.
	Kind, Object, Privileges, Role string
	// Statement grants it.
	Statement string
}

// Lacks returns what roles lack in the database. Tables are the application's that the
// worker works on: rights on their partitions and, by default privileges, on partitions
// to come are among them.
func (db Database) Lacks(ctx context.Context, on querier, roles Roles, tables []TableGrant) ([]Lack, error) {
	rights, err := json.Marshal(append([]granted{}, db.rights(roles)...))
	if err != nil {
		return nil, fmt.Errorf("list rights: %w", err)
	}
	listed, err := json.Marshal(append([]TableGrant{}, tables...))
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return list(ctx, on, "rights of roles", pgx.RowToStructByPos[Lack], sqlText("lacks"), string(rights),
		string(listed), roles.Worker)
}

// Grant grants the roles what they lack, as far as the current role may, and returns the
// rest. If it must not apply anything it returns all.
func (db Database) Grant(ctx context.Context, log *slog.Logger, roles Roles, tables []TableGrant,
	apply bool,
) (lacks []Lack, done int, err error) {
	look := func(tx pgx.Tx) (role string, err error) {
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
				_, err := look(tx)
				return err
			})
		})
		return lacks, 0, problem.Doing(err, "look up rights in database %s", db.Name)
	}
	err = withSession(ctx, log, db, func(s *session) error {
		return s.change(ctx, func(tx pgx.Tx) error {
			role, err := look(tx)
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
				// A role with some right on an object and no right to pass it on gets a
				// warning, not an error.
				_, err = look(tx)
			}
			return err
		})
	})
	if errors.Is(err, context.Canceled) {
		return nil, 0, err
	}
	return lacks, done, problem.Doing(err, "grant in database %s", db.Name)
}
