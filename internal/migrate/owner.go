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

// DefaultOwner is the role that Sexton's objects belong to.
const DefaultOwner = "sexton_owner"

// Ownership says which role Sexton's objects belong to. Functions run with that role's
// rights, and with them what the application's triggers call, so it is no superuser and
// bound by row security.
type Ownership struct {
	Role string `json:"role"`
	// Statements for a role that may run them: rights on the application's tables that
	// functions need.
	Todo []string `json:"todo"`
}

func (db Database) owner() string {
	if db.Owner == "" {
		return DefaultOwner
	}
	return db.Owner
}

// ownerState describes the owner's role.
type ownerState struct{ there, mighty, member bool }

func (s *session) readOwner(ctx context.Context) (ownerState, error) {
	var state ownerState
	err := s.pool.QueryRow(ctx, sqlText("owner_role"), s.db.owner()).Scan(&state.mighty, &state.member)
	if errors.Is(err, pgx.ErrNoRows) {
		return state, nil
	}
	if err != nil {
		return state, fmt.Errorf("look up role %s: %w", s.db.owner(), err)
	}
	state.there = true
	return state, nil
}

// ownerLacks are the statements that make the owner's role, and another one a member of
// it. A role that would lend rights to the application's triggers that no trigger may
// have is refused.
func (s *session) ownerLacks(ctx context.Context, role string) (statements []string, _ error) {
	state, err := s.readOwner(ctx)
	if state.mighty {
		err = fmt.Errorf("database %s: role %s is not fit to own Sexton's functions, as it is or is a member of a role with superuser rights, "+
			"BYPASSRLS or access to the server's files and programs; nothing was changed: name another one in jobs.owner", s.db.Name, s.db.owner())
	}
	owner := quote(s.db.owner())
	if !state.there {
		statements = append(statements, "CREATE ROLE "+owner+" NOLOGIN")
	}
	if !state.member {
		statements = append(statements, fmt.Sprintf("GRANT %s TO %s", owner, quote(role)))
	}
	return statements, err
}

// makeOwner creates the owner's role if it is missing, and makes the current role a
// member, which handing over objects needs. Roles belong to the server: migrations of its
// other databases do the same at the same time, so only the outcome counts.
func (s *session) makeOwner(ctx context.Context, role string) error {
	var failed error
	for range 5 {
		statements, err := s.ownerLacks(ctx, role)
		if err != nil || len(statements) == 0 {
			return err
		}
		if _, failed = s.pool.Exec(ctx, statements[0]); pgcatalog.SQLState(failed) == insufficientPrivilege {
			return &PrivilegeError{
				Database: s.db.Name, Role: role,
				Missing: "Sexton's objects need an owner without superuser rights, which this role may not arrange",
				Grant:   strings.Join(statements, "; "),
			}
		}
	}
	return fmt.Errorf("make role %s: %w", s.db.owner(), failed)
}

// handOver makes the role the owner of everything in the schema sexton.
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

// ownerGrant is a right that the owner's role lacks.
type ownerGrant struct{ Kind, Object, Privileges string }

func (g ownerGrant) grant(owner string) string {
	return fmt.Sprintf("GRANT %s ON %s %s TO %s", g.Privileges, g.Kind, g.Object, quote(owner))
}

func (g ownerGrant) revoke(owner string) string {
	return fmt.Sprintf("REVOKE %s ON %s %s FROM %s", g.Privileges, g.Kind, g.Object, quote(owner))
}

// grants returns what the owner's role needs on the application's tables and rules: what
// it has, or what it lacks.
func (db Database) grants(ctx context.Context, on querier, has bool) ([]ownerGrant, error) {
	tables, privileges := db.ownerNeeds()
	return list(ctx, on, "rights of role "+db.owner(), pgx.RowToStructByPos[ownerGrant],
		sqlText("owner_grants"), db.owner(), db.TrackedSchema, tables, privileges, has)
}

// grantOwner gives the role what it lacks on the application's tables. What the current
// role may not grant is left for a person.
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
	// A role with some right on a table and no right to pass it on gets a warning, not an
	// error.
	if grants, err = s.db.grants(ctx, tx, false); err != nil {
		return err
	}
	own.Todo = render.Each(grants, func(grant ownerGrant) string { return grant.grant(own.Role) })
	return nil
}

// revokeOwner takes back what grantOwner gave. The role is kept, because other databases
// use it.
func (s *session) revokeOwner(ctx context.Context, tx pgx.Tx) error {
	state, err := s.readOwner(ctx)
	if err != nil || !state.there {
		return err
	}
	grants, err := s.db.grants(ctx, tx, true)
	for _, grant := range grants {
		err = errors.Join(err, attempt(ctx, tx, grant.revoke(s.db.owner())))
	}
	return err
}

// attempt runs a statement for which the role may lack the privilege.
func attempt(ctx context.Context, tx pgx.Tx, statement string) error {
	err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error { return execAll(ctx, nested, []string{statement}) })
	if pgcatalog.SQLState(err) == insufficientPrivilege {
		return nil
	}
	return err
}

const insufficientPrivilege = "42501"

// OwnerRisk is something about the owner of Sexton's objects that a person has to put
// right.
type OwnerRisk struct {
	Object, Message, Fix string
	// Harmless reports that nothing is at stake but order.
	Harmless bool
}

// OwnerRisks looks for functions with more rights than they need, or fewer, and for
// tables that they do not read. It changes nothing.
func OwnerRisks(ctx context.Context, db Database) ([]OwnerRisk, error) {
	var found []OwnerRisk
	err := db.reading(ctx, func(on beginner) error {
		return pgx.BeginTxFunc(ctx, on, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, pgcatalog.Pinned()); err != nil {
				return err
			}
			for _, look := range []func(context.Context, pgx.Tx) ([]OwnerRisk, error){
				db.otherOwners, db.ownerLacks,
				db.unreadTables,
			} {
				risks, err := look(ctx, tx)
				if err != nil {
					return err
				}
				found = append(found, risks...)
			}
			return nil
		})
	})
	return found, problem.Doing(err, "look at the owner of Sexton's objects in database %s", db.Name)
}

func (db Database) otherOwners(ctx context.Context, tx pgx.Tx) ([]OwnerRisk, error) {
	rows, _ := tx.Query(ctx, sqlText("owner_risks"), db.owner())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (OwnerRisk, error) {
		var role string
		var mighty bool
		err := row.Scan(&role, &mighty)
		risk := OwnerRisk{
			Object: "schema " + quote(schema), Harmless: !mighty,
			Message: fmt.Sprintf("functions belong to role %s instead of %s, and lend its rights to the application's triggers", role, db.owner()),
			Fix:     "run `sexton migrate up`",
		}
		if mighty {
			risk.Message = "functions belong to role " + role +
				", a superuser or beyond row security, and lend its rights to the application's triggers"
		}
		return risk, err
	})
}

// ownerLacks names the grants without which functions fail. Without the role there are
// none to look for.
func (db Database) ownerLacks(ctx context.Context, tx pgx.Tx) ([]OwnerRisk, error) {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1)",
		db.owner()).Scan(&there); err != nil || !there {
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
			Message: "functions do not read this table, as it came after the last migration",
		}
		if !plain {
			risk.Message,
				risk.Fix = "functions do not read it, as it is no plain table: it would run its own code with their rights", "make it a table"
		}
		return risk, err
	})
}
