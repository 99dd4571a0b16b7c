package migrate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// OwnerRisk is something about the owner of Sexton's objects that a person has to put right.
type OwnerRisk struct {
	Object, Message, Fix string
	// Harmless tells that nothing is at stake but order.
	Harmless bool
}

// OwnerRisks looks for functions with more rights than they need, or fewer, and for tables that they do not read. It changes nothing.
func OwnerRisks(ctx context.Context, db Database) ([]OwnerRisk, error) {
	var found []OwnerRisk
	err := db.connected(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog"); err != nil {
				return err
			}
			for _, look := range []func(context.Context, pgx.Tx) ([]OwnerRisk, error){db.otherOwners, db.ownerLacks, db.unreadTables} {
				risks, err := look(ctx, tx)
				if err != nil {
					return err
				}
				found = append(found, risks...)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look at the owner of Sexton's objects in database %s: %w", db.Name, err)
	}
	return found, nil
}

func (db Database) otherOwners(ctx context.Context, tx pgx.Tx) ([]OwnerRisk, error) {
	rows, _ := tx.Query(ctx, db.replacer().Replace(sqlText("owner_risks")), db.JobsSchema, db.owner())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (OwnerRisk, error) {
		var role string
		var mighty bool
		err := row.Scan(&role, &mighty)
		risk := OwnerRisk{
			Object: "schema " + quote(db.JobsSchema), Harmless: !mighty,
			Message: fmt.Sprintf("functions belong to role %s instead of %s, and lend its rights to the application's triggers", role, db.owner()),
			Fix:     "run the statements that `sexton migrate up` prints, and `sexton migrate up` again",
		}
		if mighty {
			risk.Message = "functions belong to role " + role + ", a superuser or beyond row security, and lend its rights to the application's triggers"
		}
		return risk, err
	})
}

// ownerLacks names the grants without which functions fail. Without the role there are none to look for.
func (db Database) ownerLacks(ctx context.Context, tx pgx.Tx) ([]OwnerRisk, error) {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1)", db.owner()).Scan(&there); err != nil || !there {
		return nil, err
	}
	grants, err := db.lackingGrants(ctx, tx)
	if err != nil {
		return nil, err
	}
	var found []OwnerRisk
	for _, grant := range grants {
		found = append(found, OwnerRisk{
			Object: grant.Object, Message: fmt.Sprintf("role %s, which owns Sexton's functions, lacks %s", db.owner(), grant.Privileges),
			Fix: grant.statement(db.owner()),
		})
	}
	policies, err := db.bindingPolicies(ctx, tx)
	for _, statement := range policies {
		found = append(found, OwnerRisk{
			Object: "role " + db.owner(), Message: "row security binds Sexton's functions on the application's tables, so that they fail", Fix: statement,
		})
	}
	return found, err
}

func (db Database) unreadTables(ctx context.Context, tx pgx.Tx) ([]OwnerRisk, error) {
	rows, _ := tx.Query(ctx, db.replacer().Replace(sqlText("owner_tables")), db.TrackedSchema, optionalTables())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (OwnerRisk, error) {
		var name string
		var plain bool
		err := row.Scan(&name, &plain)
		risk := OwnerRisk{
			Object: identity(db.TrackedSchema, name), Fix: "sexton migrate up",
			Message: "functions do not read this table, as it came after the last migration",
		}
		if !plain {
			risk.Message, risk.Fix = "functions do not read it, as it is no plain table: it would run its own code with their rights", "make it a table"
		}
		return risk, err
	})
}
