package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// tooShort are the timeouts that end sessions or statements from outside, with the shortest value that leaves
// Sexton alone and what happens below it. Batches set the first three for themselves; the rest of a pass
// does not.
var tooShort = []struct { //nolint:gochecknoglobals // a table
	name   string
	least  time.Duration
	effect string
}{
	{"statement_timeout", 10 * time.Second, "it ends what prepares and follows batches, such as the check of the definitions"},
	{"lock_timeout", time.Second, "leases and fences are given up that another session only holds for a moment"},
	{"idle_in_transaction_session_timeout", 10 * time.Second, "it ends sessions whose worker stands still for a moment"},
	{"idle_session_timeout", time.Minute, "it ends the connections that wait for notifications"},
	{"transaction_timeout", time.Minute, "it ends batches in the middle, as no batch can lift it"},
}

func settings(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	names := make([]string, len(tooShort))
	for i, timeout := range tooShort {
		names[i] = timeout.name
	}
	type row struct {
		Name                   string
		Milliseconds           int64
		Source, Role, Database string
	}
	found, err := query(ctx, tx, "read timeouts", sqlText("settings"), []any{names}, func(r row) []Finding {
		timeout := tooShort[slices.Index(names, r.Name)]
		value := time.Duration(r.Milliseconds) * time.Millisecond
		if value >= timeout.least {
			return nil
		}
		return one(problem.Warning, r.Name, fmt.Sprintf("%s is %s for role %s, less than %s: %s", r.Name, value, r.Role, timeout.least, timeout.effect),
			lift(r.Name, r.Source, r.Role, r.Database))
	})
	if err != nil {
		return nil, err
	}
	level, err := isolation(ctx, tx)
	return append(found, level...), err
}

// isolation asks for the level at which transactions begin. Batches and doors begin at the one that they need, single
// statements do not.
func isolation(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	const name, right = "default_transaction_isolation", "read committed"
	const sql = `SELECT setting.reset_val, setting.source, pg_catalog.format('%I', current_user), pg_catalog.format('%I', pg_catalog.current_database())
FROM pg_catalog.pg_settings AS setting WHERE setting.name = $1 AND setting.reset_val <> $2`
	type row struct{ Value, Source, Role, Database string }
	return query(ctx, tx, "read "+name, sql, []any{name, right}, func(r row) []Finding {
		fix := lift(name, r.Source, r.Role, r.Database)
		if strings.HasSuffix(fix, " = 0") {
			fix = fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = '%s'", r.Role, r.Database, name, right)
		}
		return one(problem.Warning, name, fmt.Sprintf("transactions of role %s begin at %s: statements on leases and jobs fail beside another session "+
			"on the same rows", r.Role, r.Value), fix)
	})
}

// lift says how to get rid of a setting, by where it comes from.
func lift(name, source, role, database string) string {
	switch source {
	case "client":
		return "remove " + name + " from the connection string"
	case "database user":
		return fmt.Sprintf("ALTER ROLE %s IN DATABASE %s RESET %s", role, database, name)
	case "user":
		return fmt.Sprintf("ALTER ROLE %s RESET %s", role, name)
	default:
		return fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = 0", role, database, name)
	}
}
