package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// DefaultOwner is the default owner of Sexton's objects.
const DefaultOwner = "sexton_owner"

// Ownership describes the owner of Sexton's objects. SECURITY DEFINER functions, and the
// application's triggers that they fire, run with the privileges of that role. So it must
// not be a superuser or bypass row security.
type Ownership struct {
	Role string `json:"role"`
	// The current role may not run the GRANT statements in Todo. They grant privileges
	// that the functions need on the application's tables.
	Todo []string `json:"todo"`
}

func (db Database) owner() string {
	if db.Owner == "" {
		return DefaultOwner
	}
	return db.Owner
}

// ownerState describes the owner's role. powerful reports that the owner's role has
// superuser privileges or similar privileges. member reports that the current role is a
// member of the owner's role.
type ownerState struct{ exists, powerful, member bool }

func (s *session) readOwner(ctx context.Context) (ownerState, error) {
	var state ownerState
	err := s.pool.QueryRow(ctx, sqlText("owner_role"), s.db.owner()).Scan(&state.powerful, &state.member)
	if errors.Is(err, pgx.ErrNoRows) {
		return state, nil
	}
	if err != nil {
		return state, fmt.Errorf("read role %s: %w", s.db.owner(), err)
	}
	state.exists = true
	return state, nil
}

// ownerStatements returns the missing statements that create the owner's role and make
// another role a member. It returns an error if the owner's role has privileges that the
// application's triggers must not get.
func (s *session) ownerStatements(ctx context.Context, role string) (statements []string, _ error) {
	state, err := s.readOwner(ctx)
	if state.powerful {
		err = fmt.Errorf("database %s: role %s must not own Sexton's functions, because it is or is a member of a role with superuser privileges, "+
			"BYPASSRLS or access to the server's files and programs; nothing was changed: set jobs.owner to another role", s.db.Name, s.db.owner())
	}
	owner := quote(s.db.owner())
	if !state.exists {
		statements = append(statements, "CREATE ROLE "+owner+" NOLOGIN")
	}
	if !state.member {
		statements = append(statements, fmt.Sprintf("GRANT %s TO %s", owner, quote(role)))
	}
	return statements, err
}

// makeOwner creates the owner's role if it is missing, and makes the current role a
// member, so that it can change the owner of objects. Roles belong to the server, and
// migrations of its other databases may do the same concurrently. So makeOwner retries
// until nothing is missing.
func (s *session) makeOwner(ctx context.Context, role string) error {
	var failed error
	for range 5 {
		statements, err := s.ownerStatements(ctx, role)
		if err != nil || len(statements) == 0 {
			return err
		}
		if _, failed = s.pool.Exec(ctx, statements[0]); pgcatalog.SQLState(failed) == insufficientPrivilege {
			return &PrivilegeError{
				Database: s.db.Name, Role: role,
				Missing: "Sexton's objects need an owner without superuser privileges, and this role may not create that role or become a member",
				Grant:   strings.Join(statements, "; "),
			}
		}
	}
	return fmt.Errorf("create role %s: %w", s.db.owner(), failed)
}

// handOver changes the owner of everything in the schema sexton.
func (s *session) handOver(ctx context.Context, tx pgx.Tx, own *Ownership) error {
	statements, err := list(ctx, tx, "owners of objects", pgx.RowTo[string], sqlText("owner_objects"), own.Role)
	if err == nil {
		err = execAll(ctx, tx, statements)
	}
	if len(statements) > 0 && err == nil {
		s.log.InfoContext(ctx, "objects_handed_over", slog.String("database", s.db.Name),
			slog.String("owner", own.Role),
			slog.Int("objects", len(statements)))
	}
	return err
}

// ownerGrant describes privileges of the owner's role on one object.
type ownerGrant struct{ Kind, Object, Privileges string }

func (g ownerGrant) grant(owner string) string {
	return fmt.Sprintf("GRANT %s ON %s %s TO %s", g.Privileges, g.Kind, g.Object, quote(owner))
}

func (g ownerGrant) revoke(owner string) string {
	return fmt.Sprintf("REVOKE %s ON %s %s FROM %s", g.Privileges, g.Kind, g.Object, quote(owner))
}

// grants returns privileges of the owner's role on the application's tables and rules. If
// has is set, it returns the privileges that the role has, and otherwise the required
// privileges that it lacks.
func (db Database) grants(ctx context.Context, on querier, has bool) ([]ownerGrant, error) {
	tables, privileges := db.ownerNeeds()
	return list(ctx, on, "privileges of role "+db.owner(), pgx.RowToStructByPos[ownerGrant],
		sqlText("owner_grants"), db.owner(), db.TrackedSchema, tables, privileges, has)
}

// grantOwner grants the owner's role its missing privileges on the application's tables
// and rules. If the current role may not grant a privilege, grantOwner adds it to
// own.Todo.
func (s *session) grantOwner(ctx context.Context, tx pgx.Tx, own *Ownership) error {
	grants, err := s.db.grants(ctx, tx, false)
	if err != nil {
		return err
	}
	for _, grant := range grants {
		if err := attempt(ctx, tx, grant.grant(own.Role)); err != nil {
			return err
		}
	}
	// Postgres returns a warning, not an error, if the role has privileges on a table but
	// no grant option.
	if grants, err = s.db.grants(ctx, tx, false); err != nil {
		return err
	}
	own.Todo = render.Each(grants, func(grant ownerGrant) string { return grant.grant(own.Role) })
	return nil
}

// revokeOwner revokes the privileges that grantOwner has granted. The role is kept,
// because other databases use it.
func (s *session) revokeOwner(ctx context.Context, tx pgx.Tx) error {
	state, err := s.readOwner(ctx)
	if err != nil || !state.exists {
		return err
	}
	grants, err := s.db.grants(ctx, tx, true)
	for _, grant := range grants {
		err = errors.Join(err, attempt(ctx, tx, grant.revoke(s.db.owner())))
	}
	return err
}

// attempt runs a statement, and ignores an error that reports a missing privilege.
func attempt(ctx context.Context, tx pgx.Tx, statement string) error {
	err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error { return execAll(ctx, nested, []string{statement}) })
	if pgcatalog.SQLState(err) == insufficientPrivilege {
		return nil
	}
	return err
}

const insufficientPrivilege = "42501"

// OwnerRisk is a problem with the owner of Sexton's objects that an operator must fix.
type OwnerRisk struct {
	Object, Message, Fix string
	// Harmless reports that the problem does not affect security.
	Harmless bool
}

// OwnerRisks returns problems with the owner of Sexton's objects: functions with too many
// or too few privileges, and tables that functions do not read.
func OwnerRisks(ctx context.Context, db Database) ([]OwnerRisk, error) {
	var found []OwnerRisk
	err := db.reading(ctx, func(on beginner) error {
		return pgx.BeginTxFunc(ctx, on, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, pgcatalog.Pinned()); err != nil {
				return err
			}
			for _, read := range []func(context.Context, pgx.Tx) ([]OwnerRisk, error){
				db.otherOwners, db.ownerLacks,
				db.unreadTables,
			} {
				risks, err := read(ctx, tx)
				if err != nil {
					return err
				}
				found = append(found, risks...)
			}
			return nil
		})
	})
	return found, problem.Doing(err, "check the owner of Sexton's objects in database %s", db.Name)
}

func (db Database) otherOwners(ctx context.Context, tx pgx.Tx) ([]OwnerRisk, error) {
	rows, _ := tx.Query(ctx, sqlText("owner_risks"), db.owner())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (OwnerRisk, error) {
		var role string
		var powerful bool
		err := row.Scan(&role, &powerful)
		risk := OwnerRisk{
			Object: "schema " + quote(schema), Harmless: !powerful,
			Message: fmt.Sprintf("role %s owns functions instead of %s, and the application's triggers run with its privileges", role, db.owner()),
			Fix:     "run `sexton migrate up`",
		}
		if powerful {
			risk.Message = "role " + role +
				", a superuser or with BYPASSRLS, owns functions, and the application's triggers run with its privileges"
		}
		return risk, err
	})
}

// ownerLacks returns the missing privileges without which functions fail, or none if the
// role does not exist.
func (db Database) ownerLacks(ctx context.Context, tx pgx.Tx) ([]OwnerRisk, error) {
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1)",
		db.owner()).Scan(&exists); err != nil || !exists {
		return nil, err
	}
	grants, err := db.grants(ctx, tx, false)
	if err != nil {
		return nil, err
	}
	return render.Each(grants, func(grant ownerGrant) OwnerRisk {
		return OwnerRisk{
			Object: grant.Object, Message: fmt.Sprintf("role %s, which owns Sexton's functions, lacks %s", db.owner(),
				grant.Privileges),
			Fix: grant.grant(db.owner()),
		}
	}), nil
}

func (db Database) unreadTables(ctx context.Context, tx pgx.Tx) ([]OwnerRisk, error) {
	rows, _ := tx.Query(ctx, sqlText("owner_tables"), db.TrackedSchema, optionalTables())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (OwnerRisk, error) {
		var name string
		var plain bool
		err := row.Scan(&name, &plain)
		risk := OwnerRisk{
			Object: identity(db.TrackedSchema, name), Fix: "sexton migrate up",
			Message: "functions do not read this table, because it was created after the last `sexton migrate up`",
		}
		if !plain {
			risk.Message,
				risk.Fix = "functions do not read it, because it is not a table and could run its own code with their privileges", "replace it with a table"
		}
		return risk, err
	})
}
