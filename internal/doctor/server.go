package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
			return One(problem.Error, "default_transaction_read_only", "transactions are read-only by default, so that no batch can write",
				"turn default_transaction_read_only off for the worker's role")
		}
		return nil
	})
}

// statistics asks whether the role sees when other roles' transactions began.
func statistics(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	const sql = "SELECT pg_catalog.format('%I', current_user) WHERE NOT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')"
	return query(ctx, tx, "look up memberships", sql, nil, func(r struct{ Role string }) []Finding {
		return One(problem.Warning, r.Role, "the role does not see when the transactions of other roles began: children that are inserted late can only "+
			"be waited for by the clock, and old transactions and replicas that are far behind go unnoticed", "GRANT pg_read_all_stats TO "+r.Role)
	})
}

const (
	// QueueWarning and queueError are shares of the notification queue that are in use.
	QueueWarning = 0.1
	queueError   = 0.5
)

func notifyQueue(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	const sql = "SELECT pg_catalog.pg_notification_queue_usage()"
	return query(ctx, tx, "read usage of the notification queue", sql, nil, func(r struct{ Usage float64 }) []Finding { return judgeQueue(r.Usage) })
}

func judgeQueue(usage float64) []Finding {
	severity := problem.Warning
	switch {
	case usage <= QueueWarning:
		return nil
	case usage > queueError:
		severity = problem.Error
	}
	return One(severity, "pg_notification_queue_usage",
		fmt.Sprintf("the notification queue is %.0f %% full; once it is full, every commit that notifies fails", 100*usage),
		"end the session that listens and has had a transaction open for long; the server's log names it")
}

// autovacuum looks for queue tables without vacuum. Nearly every row in them is a dead one before long.
func (t Target) autovacuum(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	const effect = "dead rows stay in the queue tables, and every look at them steps over those"
	const sql = `SELECT name FROM pg_catalog.pg_settings WHERE name IN ('autovacuum', 'track_counts') AND setting = 'off' ORDER BY name LIMIT 1`
	off, err := query(ctx, tx, "read settings of autovacuum", sql, nil, func(r struct{ Off string }) []Finding {
		return One(problem.Warning, r.Off, r.Off+" is off: "+effect, "ALTER SYSTEM SET "+r.Off+" = on; SELECT pg_catalog.pg_reload_conf()")
	})
	if err != nil || len(off) > 0 {
		return off, err
	}
	args := []any{pgcatalog.Schema, t.Database.Names.Tracked}
	return query(ctx, tx, "read options of queue tables", sqlText("autovacuum"), args, func(r struct{ Table string }) []Finding {
		return One(problem.Warning, r.Table, "autovacuum is off for this table: "+effect, "ALTER TABLE "+r.Table+" RESET (autovacuum_enabled)")
	})
}

// room asks whether a worker finds as many free connections as it may open.
func (t Target) room(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		Object, Fix  string
		Limit, Taken int
	}
	return query(ctx, tx, "count connections", sqlText("room"), nil, func(r row) []Finding {
		need := Share{Connections: t.Connections}
		switch {
		case r.Object == "max_connections" && len(t.Server.Databases) > 1:
			need = t.Server
		case strings.HasPrefix(r.Object, "role ") && len(t.Role.Databases) > 1:
			need = t.Role
		}
		if r.Limit-r.Taken >= need.Connections {
			return nil
		}
		if r.Object != "max_connections" {
			r.Fix = fmt.Sprintf("%s %d", r.Fix, r.Taken+need.Connections)
		}
		together := ""
		if len(need.Databases) > 0 {
			together = " to databases " + strings.Join(need.Databases, ", ") + " together"
		}
		return One(problem.Warning, r.Object, fmt.Sprintf("of %d connections others have %d, and a worker may open %d%s",
			r.Limit, r.Taken, need.Connections, together), r.Fix+"; or lower "+strings.Join(t.PoolKeys, " and "))
	})
}

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
		return One(problem.Warning, r.Name, fmt.Sprintf("%s is %s for role %s, less than %s: %s", r.Name, value, r.Role, timeout.least, timeout.effect),
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
		return One(problem.Warning, name, fmt.Sprintf("transactions of role %s begin at %s: statements on leases and jobs fail beside another session "+
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

// Offsets of the clock from which schedules are noticeably wrong.
const (
	clockWarning = time.Second
	clockError   = 5 * time.Second
)

// clock compares this machine's clock with the server's. Of several round trips the shortest says most.
func (t Target) clock(ctx context.Context) ([]Finding, error) {
	now := t.Now
	if now == nil {
		now = time.Now
	}
	var offset, uncertain time.Duration
	for i := range 3 {
		var server time.Time
		sent := now()
		if err := t.Database.Pool.QueryRow(ctx, "SELECT pg_catalog.clock_timestamp()").Scan(&server); err != nil {
			return nil, fmt.Errorf("ask for the server's time: %w", err)
		}
		half := now().Sub(sent) / 2
		if i == 0 || half < uncertain {
			offset, uncertain = server.Sub(sent.Add(half)), half
		}
	}
	return judgeClock(offset, uncertain), nil
}

// judgeClock counts only what the round trip cannot explain. A positive offset means that the server is ahead.
func judgeClock(offset, uncertain time.Duration) []Finding {
	certain := offset.Abs() - uncertain
	if certain <= clockWarning {
		return nil
	}
	severity, direction := problem.Warning, "ahead of"
	if certain > clockError {
		severity = problem.Error
	}
	if offset > 0 {
		direction = "behind"
	}
	return One(severity, "clock", fmt.Sprintf("this machine's clock is %s %s the server's: schedules follow the one, everything else the other",
		offset.Abs().Round(100*time.Millisecond), direction), "have NTP keep both clocks")
}
