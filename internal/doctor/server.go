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

// version finds a version of Postgres with which Sexton is not tested.
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

// recovery finds a database that accepts no writes.
func recovery(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct{ Standby, ReadOnly bool }
	const sql = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')::boolean"
	return query(ctx, tx, "query whether the server is in recovery", sql, nil, func(r row) []Finding {
		switch {
		case r.Standby:
			return One(problem.Error, "pg_is_in_recovery", "the server is in recovery: a standby is read-only",
				"point url at the primary; if it has several hosts, add target_session_attrs=read-write")
		case r.ReadOnly:
			return One(problem.Error, "default_transaction_read_only",
				"transactions are read-only by default, so no batch can write",
				"set default_transaction_read_only to off for the worker's role")
		}
		return nil
	})
}

// statistics finds a role that cannot see when transactions of other roles began.
func (t Target) statistics(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	return query(ctx, tx, "query memberships", sqlText("statistics"), []any{t.Role.Name, t.Role.Source == OfURL},
		func(r struct{ Role string }) []Finding {
			return One(problem.Warning, r.Role,
				"the role cannot see when transactions of other roles began: rechecks wait for a fixed time instead of "+
					"these transactions, and old transactions and lagging replicas are not detected",
				"GRANT pg_read_all_stats TO "+r.Role)
		})
}

// room finds connection limits that leave fewer connections than a worker may open.
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
			fmt.Sprintf("other sessions use %[2]d of %[1]d connections, and a worker may open %[3]d "+
				"(jobs.max_workers and the connections of components)", r.Limit, r.Taken, t.Connections), r.Fix)
	})
}

// tooShort lists the timeouts that end sessions or statements. least is the shortest
// value that does not affect Sexton, and effect is the effect of a shorter value. Batches
// set the first three timeouts themselves, but other statements of a run do not.
var tooShort = []struct { //nolint:gochecknoglobals // a table
	name   string
	least  time.Duration
	effect string
}{
	{
		"statement_timeout", 10 * time.Second,
		"it ends statements outside of batches, such as the check of the definitions",
	},
	{"lock_timeout", time.Second, "it cancels statements that wait for a lease or fence for a short time"},
	{
		"idle_in_transaction_session_timeout", 10 * time.Second,
		"it ends sessions of workers that pause for a short time",
	},
	{"idle_session_timeout", time.Minute, "it ends the connections that wait for notifications"},
	{"transaction_timeout", time.Minute, "it ends batches, which cannot change it"},
}

// settings finds timeouts of the role that are shorter than Sexton needs.
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
			settingFix(r.Name, r.Source, r.Role, r.Database))
	})
}

// settingFix returns the statement or instruction that resets a setting. It depends on
// the source of the setting in pg_settings.
func settingFix(name, source, role, database string) string {
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
