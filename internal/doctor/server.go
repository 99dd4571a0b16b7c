package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

func version(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	const sql = "SELECT pg_catalog.current_setting('server_version')"
	return query(ctx, tx, "read server version", sql, nil, func(r struct{ Text string }) []Finding {
		found := pgcatalog.Untested(r.Text)
		if found.Message == "" {
			return nil
		}
		return One(found.Severity, "server_version", found.Message, found.Fix)
	})
}

// recovery asks whether the database can be written to.
func recovery(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct{ Standby, ReadOnly bool }
	const sql = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')::boolean"
	return query(ctx, tx, "look whether the server is in recovery", sql, nil, func(r row) []Finding {
		switch {
		case r.Standby:
			return One(problem.Error, "pg_is_in_recovery", "the server is in recovery: a standby can be read from only",
				"point url at the primary; with several hosts in it add target_session_attrs=read-write")
		case r.ReadOnly:
			return One(problem.Error, "default_transaction_read_only",
				"transactions are read-only by default, so that no batch can write",
				"turn default_transaction_read_only off for the worker's role")
		}
		return nil
	})
}

// statistics asks whether the role sees when other roles' transactions began.
func (t Target) statistics(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	return query(ctx, tx, "look up memberships", sqlText("statistics"), []any{t.Role.Name, t.Role.Source == OfURL},
		func(r struct{ Role string }) []Finding {
			return One(problem.Warning, r.Role,
				"the role does not see when the transactions of other roles began: children that are inserted late can only "+
					"be waited for by the clock, and old transactions and replicas that are far behind go unnoticed",
				"GRANT pg_read_all_stats TO "+r.Role)
		})
}

// room asks whether a worker finds as many free connections as it may open.
func (t Target) room(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		Object, Fix  string
		Limit, Taken int
	}
	return query(ctx, tx, "count connections", sqlText("room"), []any{t.Role.Name}, func(r row) []Finding {
		if r.Limit-r.Taken >= t.Connections {
			return nil
		}
		if r.Object != "max_connections" {
			r.Fix = fmt.Sprintf("%s %d", r.Fix, r.Taken+t.Connections)
		}
		return One(problem.Warning, r.Object,
			fmt.Sprintf("of %d connections others have %d, and a worker may open %d "+
				"(jobs.max_workers and the connections of components)", r.Limit, r.Taken, t.Connections), r.Fix)
	})
}

// tooShort are the timeouts that end sessions or statements from outside, with the
// shortest value that leaves Sexton alone and what happens below it. Batches set the
// first three for themselves; the rest of a pass does not.
var tooShort = []struct { //nolint:gochecknoglobals // a table
	name   string
	least  time.Duration
	effect string
}{
	{
		"statement_timeout", 10 * time.Second,
		"it ends what prepares and follows batches, such as the check of the definitions",
	},
	{"lock_timeout", time.Second, "leases and fences are given up that another session only holds for a moment"},
	{
		"idle_in_transaction_session_timeout", 10 * time.Second,
		"it ends sessions whose worker stands still for a moment",
	},
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
	return query(ctx, tx, "read timeouts", sqlText("settings"), []any{names}, func(r row) []Finding {
		timeout := tooShort[slices.Index(names, r.Name)]
		value := time.Duration(r.Milliseconds) * time.Millisecond
		if value >= timeout.least {
			return nil
		}
		return One(problem.Warning, r.Name, fmt.Sprintf("%s is %s for role %s, less than %s: %s", r.Name, value, r.Role,
			timeout.least, timeout.effect),
			lift(r.Name, r.Source, r.Role, r.Database))
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
